/* nvRTC: programs. It compiles no source: a program "compiles" to an image that a driver can load, whose kernels do
 * nothing.
 *
 *   source + name expressions --nvrtcCompileProgram--> PTX    text: an empty kernel for each known name
 *                                                      cubin  a fat binary's header: a driver takes any name of it
 *
 * Known names: those after __global__ in the source (for extern "C" kernels), and the lowered names of the
 * expressions. A lowered name is derived from the expression, the same each time; it is not C++'s mangled name.
 */
#include "sim/libraries/stand_in.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

enum { /* nvrtcResult */
       OUT_OF_MEMORY = 1,
       INVALID_INPUT = 3,
       INVALID_PROGRAM = 4,
       AFTER_COMPILATION = 8,
       BEFORE_COMPILATION = 9,
       NOT_VALID = 10,
};

/* A version that NVIDIA never released: programs cache compiled kernels in files by the compiler's version, and must
 * not confuse these with a real compiler's. */
#define MINOR 99

#if STAND_IN_MAJOR == 12
static const int architectures[] = {50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 120, 121};
#else
static const int architectures[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
#endif

struct name {
	struct name *next;
	char *expression; /* NULL: found in the source */
	char *lowered;
};

struct program {
	char *source;
	struct name *names;
	char *ptx;
	bool compiled;
	bool real; /* compiled for an actual architecture */
};

/* A fat binary: its magic number, version 1, a header of 16 bytes, no content. */
static const uint32_t cubin[] = {0xba55ed50u, 0x00100001u, 0, 0};

int nvrtcCreateProgram(struct program **ret_program, const char *source, const char *name, int header_count,
		       const char *const *headers, const char *const *header_names)
{
	(void)name, (void)header_count, (void)headers, (void)header_names;
	if (!ret_program || !source)
		return INVALID_INPUT;
	*ret_program = calloc(1, sizeof **ret_program);
	if (!*ret_program)
		return OUT_OF_MEMORY;
	(*ret_program)->source = strdup(source);
	if ((*ret_program)->source)
		return 0;
	free(*ret_program);
	*ret_program = NULL;
	return OUT_OF_MEMORY;
}

int nvrtcDestroyProgram(struct program **program)
{
	if (!program || !*program)
		return INVALID_PROGRAM;
	while ((*program)->names) {
		struct name *name = (*program)->names;

		(*program)->names = name->next;
		free(name->expression);
		free(name->lowered);
		free(name);
	}
	free((*program)->source);
	free((*program)->ptx);
	free(*program);
	*program = NULL;
	return 0;
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool add_name(struct program *program, char *expression, char *lowered)
{
	struct name *name = calloc(1, sizeof *name);

	if (!name || !lowered) {
		free(name);
		free(expression);
		free(lowered);
		return false;
	}
	*name = (struct name){program->names, expression, lowered};
	program->names = name;
	return true;
}

static bool has(const struct program *program, const char *lowered)
{
	const struct name *name;

	for (name = program->names; name; name = name->next) {
		if (strcmp(name->lowered, lowered) == 0)
			return true;
	}
	return false;
}

/* "kernel<float>" becomes "_Z13kernel_float_". A kernel that the source declares extern "C" keeps its name. */
static char *lower(const struct program *program, const char *expression)
{
	char *lowered = NULL;
	char *c;

	if (strstr(program->source, "extern \"C\"")) {
		for (c = (char *)expression; is_word(*c); c++)
			;
		if (*c == '\0')
			return strdup(expression);
	}
	if (asprintf(&lowered, "_Z%zu%s", strlen(expression), expression) < 0)
		return NULL;
	for (c = lowered; *c; c++) {
		if (!is_word(*c))
			*c = '_';
	}
	return lowered;
}

int nvrtcAddNameExpression(struct program *program, const char *expression)
{
	char *copy;

	if (!program)
		return INVALID_PROGRAM;
	if (!expression)
		return INVALID_INPUT;
	if (program->compiled)
		return AFTER_COMPILATION;
	copy = strdup(expression);
	return copy && add_name(program, copy, lower(program, expression)) ? 0 : OUT_OF_MEMORY;
}

int nvrtcGetLoweredName(struct program *program, const char *expression, const char **ret_name)
{
	const struct name *name;

	if (!program)
		return INVALID_PROGRAM;
	if (!expression || !ret_name)
		return INVALID_INPUT;
	if (!program->compiled)
		return BEFORE_COMPILATION;
	for (name = program->names; name; name = name->next) {
		if (name->expression && strcmp(name->expression, expression) == 0) {
			*ret_name = name->lowered;
			return 0;
		}
	}
	return NOT_VALID;
}

/* Adds the name of each kernel: the word before the parenthesis that opens the kernel's arguments. Attributes with
 * arguments of their own, such as __launch_bounds__(256), come before that word. */
static bool find_kernels(struct program *program)
{
	const char *at = program->source;

	while ((at = strstr(at, "__global__"))) {
		const char *word = NULL;
		size_t length = 0;

		at += strlen("__global__");
		while (*at && !strchr(";{(", *at)) {
			if (is_word(*at)) {
				word = at;
				for (length = 0; is_word(at[length]); length++)
					;
				at += length;
			} else
				at++;
			if (word && *at == '(' && strncmp(word, "__launch_bounds__", length) == 0 && strchr(at, ')'))
				at = strchr(at, ')') + 1;
		}
		if (word && *at == '(') {
			char *name = strndup(word, length);

			if (name && has(program, name))
				free(name);
			else if (!add_name(program, NULL, name))
				return false;
		}
	}
	return true;
}

static bool write_ptx(struct program *program, int architecture)
{
	const struct name *name;
	size_t bytes = 0;
	FILE *file = open_memstream(&program->ptx, &bytes);

	if (!file)
		return false;
	fprintf(file, "// neap's stand-in for nvRTC: kernels without code\n.version %d.%d\n.target sm_%d\n",
		STAND_IN_MAJOR == 12 ? 8 : 9, STAND_IN_MAJOR == 12 ? 8 : 2, architecture);
	fprintf(file, ".address_size 64\n");
	for (name = program->names; name; name = name->next)
		fprintf(file, "\n.visible .entry %s()\n{\n\tret;\n}\n", name->lowered);
	return fclose(file) == 0;
}

/* --gpu-architecture=sm_90, -arch=sm_90, -arch sm_90: 90, and whether it is actual (sm_) or virtual (compute_). */
static int read_architecture(int count, const char *const *options, bool *ret_real)
{
	int architecture = architectures[0];
	int i;

	*ret_real = false;
	for (i = 0; i < count; i++) {
		const char *real = options[i] ? strstr(options[i], "sm_") : NULL;
		const char *virtual = options[i] ? strstr(options[i], "compute_") : NULL;

		if (!real && !virtual)
			continue;
		if (strncmp(options[i], "-", 1) == 0 && !strstr(options[i], "arch"))
			continue;
		architecture = atoi(real ? real + strlen("sm_") : virtual + strlen("compute_"));
		*ret_real = real != NULL;
	}
	return architecture;
}

int nvrtcCompileProgram(struct program *program, int option_count, const char *const *options)
{
	if (!program)
		return INVALID_PROGRAM;
	if (option_count < 0 || (option_count > 0 && !options))
		return INVALID_INPUT;
	free(program->ptx);
	program->ptx = NULL;
	if (!find_kernels(program) || !write_ptx(program, read_architecture(option_count, options, &program->real)))
		return OUT_OF_MEMORY;
	program->compiled = true;
	return (int)stand_in_values("nvrtcCompileProgram");
}

int nvrtcGetPTXSize(const struct program *program, size_t *ret_bytes)
{
	if (!program || !program->compiled)
		return INVALID_PROGRAM;
	if (!ret_bytes)
		return INVALID_INPUT;
	*ret_bytes = strlen(program->ptx) + 1;
	return 0;
}

int nvrtcGetPTX(const struct program *program, char *to)
{
	if (!program || !program->compiled)
		return INVALID_PROGRAM;
	if (!to)
		return INVALID_INPUT;
	strcpy(to, program->ptx);
	return 0;
}

int nvrtcGetCUBINSize(const struct program *program, size_t *ret_bytes)
{
	if (!program || !program->compiled)
		return INVALID_PROGRAM;
	if (!ret_bytes)
		return INVALID_INPUT;
	*ret_bytes = program->real ? sizeof cubin : 0;
	return 0;
}

int nvrtcGetCUBIN(const struct program *program, char *to)
{
	if (!program || !program->compiled || !program->real)
		return INVALID_PROGRAM;
	if (!to)
		return INVALID_INPUT;
	memcpy(to, cubin, sizeof cubin);
	return 0;
}

/* An empty log. */
int nvrtcGetProgramLogSize(const struct program *program, size_t *ret_bytes)
{
	if (!program)
		return INVALID_PROGRAM;
	if (!ret_bytes)
		return INVALID_INPUT;
	*ret_bytes = 1;
	return 0;
}

int nvrtcGetProgramLog(const struct program *program, char *to)
{
	if (!program)
		return INVALID_PROGRAM;
	if (!to)
		return INVALID_INPUT;
	*to = '\0';
	return 0;
}

const char *nvrtcGetErrorString(int result)
{
	static const char *const names[] = {
		"NVRTC_SUCCESS",
		"NVRTC_ERROR_OUT_OF_MEMORY",
		"NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
		"NVRTC_ERROR_INVALID_INPUT",
		"NVRTC_ERROR_INVALID_PROGRAM",
		"NVRTC_ERROR_INVALID_OPTION",
		"NVRTC_ERROR_COMPILATION",
		"NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
		"NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
		"NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
		"NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
		"NVRTC_ERROR_INTERNAL_ERROR",
		"NVRTC_ERROR_TIME_FILE_WRITE_FAILED",
		"NVRTC_ERROR_NO_PCH_CREATE_ATTEMPTED",
		"NVRTC_ERROR_PCH_CREATE_HEAP_EXHAUSTED",
		"NVRTC_ERROR_PCH_CREATE",
		"NVRTC_ERROR_CANCELLED",
		"NVRTC_ERROR_TIME_TRACE_FILE_WRITE_FAILED",
	};

	return result >= 0 && (size_t)result < sizeof names / sizeof names[0] ? names[result] : "NVRTC_ERROR unknown";
}

int nvrtcVersion(int *ret_major, int *ret_minor)
{
	if (!ret_major || !ret_minor)
		return INVALID_INPUT;
	*ret_major = STAND_IN_MAJOR;
	*ret_minor = MINOR;
	return 0;
}

int nvrtcGetNumSupportedArchs(int *ret_count)
{
	if (!ret_count)
		return INVALID_INPUT;
	*ret_count = (int)(sizeof architectures / sizeof architectures[0]);
	return 0;
}

int nvrtcGetSupportedArchs(int *ret_architectures)
{
	if (!ret_architectures)
		return INVALID_INPUT;
	memcpy(ret_architectures, architectures, sizeof architectures);
	return 0;
}
