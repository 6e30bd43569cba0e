/* analyze/oom_text.c: finds the message, reads its figures by the words around them, does the arithmetic.
 *
 * The text is first copied to plain words with single blanks: a log wraps lines, draws boxes and colours. A figure is
 * then looked for on the side of a phrase where that wording has it, so that a missing or an added sentence harms no
 * other figure.
 */
#include "analyze/oom_text_internal.h"

#include "base/error.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_CAPACITY 4096            /* of plain words; the longest known message has under 1500 */
#define CONTEXT_MAX      (1536ull << 20) /* a context with its libraries is seldom larger */
#define SCRAP_MAX        (64ull << 20)   /* free on a full device: pieces of pages, some of them the driver's own */

/* How a message begins, which words must follow soon, and which program writes it. */
static const struct opening {
	const char *words, *soon, *backend;
	enum neap_oom_wording wording;
} openings[] = {
	{"CUDA out of memory.", NULL, "CUDA", NEAP_WORDING_RESERVED},
	{"HIP out of memory.", NULL, "HIP", NEAP_WORDING_RESERVED},
	{"XPU out of memory.", NULL, "XPU", NEAP_WORDING_RESERVED},
	{"Allocation on device ", "would exceed allowed memory", "CUDA", NEAP_WORDING_ASYNC},
	{"RESOURCE_EXHAUSTED: ", "emory", "JAX",
	 NEAP_WORDING_JAX}, /* "Out of memory", "Failed to allocate ... memory" */
	{"RESOURCE_EXHAUSTED: ", "allocate", "JAX", NEAP_WORDING_JAX},
	{"CUDA error: out of memory", NULL, "CUDA", NEAP_WORDING_BARE},
	{"HIP error: out of memory", NULL, "HIP", NEAP_WORDING_BARE},
	{"CUDA_ERROR_OUT_OF_MEMORY", NULL, "CUDA", NEAP_WORDING_BARE},
	{"cudaErrorMemoryAllocation", NULL, "CUDA", NEAP_WORDING_BARE},
	{"cuda runtime error (2)", NULL, "CUDA", NEAP_WORDING_BARE},
	{"CUBLAS_STATUS_ALLOC_FAILED", NULL, "cuBLAS", NEAP_WORDING_LIBRARY},
	{"CUDNN_STATUS_ALLOC_FAILED", NULL, "cuDNN", NEAP_WORDING_LIBRARY},
	{"Cuda failure ", "out of memory", "NCCL", NEAP_WORDING_LIBRARY},
	{"No available memory for the cache blocks", NULL, "vLLM", NEAP_WORDING_VLLM},
	{"Detected ", "oom_kill event", "Slurm", NEAP_WORDING_SLURM}, /* 22.05 and later */
	{"Detected ", "oom-kill event", "Slurm", NEAP_WORDING_SLURM},
	{"Exceeded job memory limit", NULL, "Slurm", NEAP_WORDING_SLURM}, /* up to 17.02 */
	{"Exceeded step memory limit", NULL, "Slurm", NEAP_WORDING_SLURM},
	{"exceeded memory limit (", "being killed", "Slurm", NEAP_WORDING_SLURM},
};

#define SOON 64 /* bytes behind the opening, for the words that follow it */

#define BEFORE ((size_t)64 << 10) /* bytes of a log before vLLM's message, for its figures */

struct words {
	char text[MESSAGE_CAPACITY];
	size_t length;
	size_t consumed; /* bytes of the source */
};

/* The length of a terminal's colour sequence at `text`; 0 when there is none. */
static size_t escape_length(const char *text, size_t length)
{
	if (length < 2 || text[0] != '\033' || text[1] != '[')
		return 0;
	size_t i = 2;
	while (i < length && i < 32 && (isdigit((unsigned char)text[i]) || text[i] == ';'))
		i++;
	return i < length ? i + 1 : length;
}

/* Copies to plain words. Whatever is not printable ASCII, and the bars of a box, count as blanks. */
static void plain_words(const char *text, size_t length, struct words *words)
{
	size_t i = 0;
	words->length = 0;
	while (i < length && words->length < sizeof words->text - 1) {
		size_t escape = escape_length(text + i, length - i);
		if (escape > 0) {
			i += escape;
			continue;
		}
		unsigned char c = (unsigned char)text[i++];
		bool blank = c <= ' ' || c >= 0x7f || c == '|';
		if (!blank)
			words->text[words->length++] = (char)c;
		else if (words->length > 0 && words->text[words->length - 1] != ' ')
			words->text[words->length++] = ' ';
	}
	words->text[words->length] = '\0';
	words->consumed = i;
}

bool neap_oom_figure_read(const char *text, struct figure *ret_figure)
{
	static const struct {
		const char *name;
		double bytes;
	} units[] = {{"bytes", 1},         {"KiB", 1024.},          {"MiB", 1048576.},
		     {"GiB", 1073741824.}, {"TiB", 1099511627776.}, {"KB", 1024.},
		     {"MB", 1048576.},     {"GB", 1073741824.},     {"B", 1}};
	double number = 0, digit = 1;
	const char *at = text;
	bool any = false;

	for (; isdigit((unsigned char)*at); at++, any = true)
		number = number * 10 + (*at - '0');
	if (*at == '.' && isdigit((unsigned char)at[1]))
		for (at++; isdigit((unsigned char)*at); at++) {
			digit /= 10;
			number += digit * (*at - '0');
		}
	if (!any || at - text > 24)
		return false;
	while (*at == ' ')
		at++;
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
		size_t length = strlen(units[i].name);
		if (strncmp(at, units[i].name, length) != 0 || isalpha((unsigned char)at[length]))
			continue;
		double bytes = number * units[i].bytes;
		if (bytes > 0x1p62) /* sums stay within 64 bits */
			bytes = 0x1p62;
		ret_figure->bytes = (uint64_t)llround(bytes);
		ret_figure->half_digit = units[i].bytes > 1 ? (uint64_t)(digit * units[i].bytes / 2) : 0;
		return true;
	}
	return false;
}

/* The figure that follows the first `phrase`. */
static struct figure figure_after(const char *text, const char *phrase)
{
	struct figure figure;
	for (const char *at = strstr(text, phrase); at; at = strstr(at + 1, phrase))
		if (neap_oom_figure_read(at + strlen(phrase), &figure))
			return figure;
	return unknown;
}

/* The figure that ends where `end` is: two words back. */
static struct figure figure_ending(const char *text, const char *end)
{
	struct figure figure;
	const char *at = end;
	for (int words = 0; words < 2; words++) {
		while (at > text && at[-1] == ' ')
			at--;
		while (at > text && at[-1] != ' ' && at[-1] != '(')
			at--;
	}
	return at < end && neap_oom_figure_read(at, &figure) ? figure : unknown;
}

/* The figure before the first `phrase` that has one. */
static struct figure figure_before(const char *text, const char *phrase)
{
	for (const char *at = strstr(text, phrase); at; at = strstr(at + 1, phrase)) {
		struct figure figure = figure_ending(text, at);
		if (figure.bytes != NEAP_OOM_TEXT_UNKNOWN)
			return figure;
	}
	return unknown;
}

static void read_gpu(const char *text, struct neap_oom_text *found)
{
	const char *at = strstr(text, "GPU ");
	found->gpu = -1;
	if (at && isdigit((unsigned char)at[4])) {
		char *end;
		long number = strtol(at + 4, &end, 10);
		if (number >= 0 && number < 1024 && end - at < 9)
			found->gpu = (int)number;
	}
}

/* "Process 123 has 1.00 GiB memory in use." */
static void read_processes(const char *text, struct neap_oom_text *found)
{
	for (const char *at = strstr(text, "Process "); at; at = strstr(at + 1, "Process ")) {
		const char *number = at + strlen("Process ");
		struct figure figure;
		char *end;
		if (!isdigit((unsigned char)*number))
			continue;
		uint64_t pid = strtoull(number, &end, 10);
		if (strncmp(end, " has ", 5) != 0 || !neap_oom_figure_read(end + 5, &figure) ||
		    found->process_count == NEAP_OOM_TEXT_PROCESSES)
			continue;
		found->processes[found->process_count].pid = pid;
		found->processes[found->process_count++].bytes = figure.bytes;
		found->slack_bytes += figure.half_digit;
	}
}

static void read_figures(const char *text, struct neap_oom_text *found)
{
	take(found, &found->tried_bytes, figure_after(text, "Tried to allocate "));
	take(found, &found->total_bytes,
	     either(figure_after(text, "total capacity of "),
		    either(figure_after(text, "total capacty of "), figure_before(text, " total capacity"))));
	take(found, &found->free_bytes,
	     either(figure_before(text, " is free"),
		    either(figure_before(text, " free;"), figure_before(text, " free)"))));
	take(found, &found->allowed_bytes, figure_before(text, " allowed;"));
	take(found, &found->process_bytes, figure_after(text, "this process has "));
	take(found, &found->allocated_bytes,
	     either(figure_before(text, " is allocated by PyTorch"), figure_before(text, " already allocated")));
	take(found, &found->private_bytes, figure_before(text, " allocated in private pools"));
	take(found, &found->cached_bytes,
	     either(figure_before(text, " is reserved by PyTorch but unallocated"), figure_before(text, " cached)")));
	take(found, &found->reserved_bytes, figure_before(text, " reserved in total by PyTorch"));
	read_processes(text, found);
	read_gpu(text, found);
	found->wording = strstr(text, " cached)") ? NEAP_WORDING_CACHED
			 : strstr(text, "total capacity of ") || strstr(text, "total capacty of ")
				 ? NEAP_WORDING_SENTENCES
				 : NEAP_WORDING_RESERVED;
}

/* The pool gives back what it does not use before it fails, so nothing is cached. Without a limit it prints 2^64
 * bytes. */
static void read_async(const char *text, struct neap_oom_text *found)
{
	struct figure limit = figure_after(text, "memory fraction) : ");
	const char *device = strstr(text, "on device ");

	take(found, &found->tried_bytes, figure_after(text, "Requested : "));
	take(found, &found->total_bytes, figure_after(text, "Device limit : "));
	take(found, &found->free_bytes, figure_after(text, "Free (according to CUDA): "));
	take(found, &found->allocated_bytes, figure_after(text, "Currently allocated : "));
	found->reserved_bytes = found->allocated_bytes;
	if (known(limit.bytes) && known(found->total_bytes) && limit.bytes < found->total_bytes)
		take(found, &found->allowed_bytes, limit);
	if (device && isdigit((unsigned char)device[10]))
		found->gpu = (int)(strtoul(device + 10, NULL, 10) % 1024);
}

static void read_jax(const char *text, struct neap_oom_text *found)
{
	take(found, &found->tried_bytes,
	     either(figure_after(text, "request for "),
		    either(figure_after(text, "to allocate "), figure_after(text, "allocating "))));
}

/* Computes the missing figures from those that are there. */
static void complete(struct neap_oom_text *found)
{
	if (known(found->allocated_bytes) && known(found->cached_bytes) && !known(found->reserved_bytes))
		found->reserved_bytes = found->allocated_bytes + found->cached_bytes;
	if (known(found->reserved_bytes) && known(found->allocated_bytes) && !known(found->cached_bytes))
		found->cached_bytes = found->reserved_bytes > found->allocated_bytes
					      ? found->reserved_bytes - found->allocated_bytes
					      : 0;
	uint64_t total = found->total_bytes, taken = 0;
	found->spilled = known(total) && known(found->allocated_bytes) && found->allocated_bytes > total;
	if (known(found->process_bytes) && known(total) && !found->spilled && found->process_bytes > 2 * total) {
		found->absurd_process = true;
		found->process_bytes = NEAP_OOM_TEXT_UNKNOWN;
	}
	/* In a container, the text lists the process itself under its PID outside, as if it were another. */
	if (!known(found->process_bytes) && found->process_count == 1 && known(found->reserved_bytes) &&
	    found->processes[0].bytes + found->slack_bytes >= found->reserved_bytes &&
	    found->processes[0].bytes <= found->reserved_bytes + CONTEXT_MAX) {
		found->self_by_other_pid = true;
		found->process_bytes = found->processes[0].bytes;
		found->process_count = 0;
	}
	if (!known(total) || !known(found->free_bytes) || found->spilled)
		return;
	if (known(found->process_bytes)) {
		taken = found->free_bytes + found->process_bytes;
	} else if (known(found->reserved_bytes)) {
		taken = found->free_bytes + found->reserved_bytes;
		found->others_have_own_context = true;
	} else {
		return;
	}
	found->others_bytes = total > taken ? total - taken : 0;
}

/* The arithmetic of the header. */
static void decide(struct neap_oom_text *found)
{
	uint64_t tried = found->tried_bytes, free = found->free_bytes, slack = found->slack_bytes;
	uint64_t limit = known(found->allowed_bytes) ? found->allowed_bytes : found->total_bytes;

	found->cause = NEAP_TEXT_UNKNOWN;
	found->shortfall_bytes = NEAP_OOM_TEXT_UNKNOWN;
	if (!known(tried))
		return;
	if (known(limit) && tried > limit) {
		found->cause = NEAP_TEXT_REQUEST;
		found->shortfall_bytes = known(free) && tried > free ? tried - free : tried - limit;
		return;
	}
	if (!known(free))
		return;
	found->shortfall_bytes = tried > free ? tried - free : 0;
	uint64_t missing = found->shortfall_bytes;
	uint64_t cached = known(found->cached_bytes) ? found->cached_bytes : 0;
	uint64_t others = known(found->others_bytes) ? found->others_bytes : 0;
	/* Every running process has a context; only more than that can be a neighbour's. */
	if (found->others_have_own_context)
		others = others > CONTEXT_MAX ? others - CONTEXT_MAX : 0;
	bool full = free <= SCRAP_MAX && known(found->total_bytes) && others >= found->total_bytes / 4;
	if (missing == 0) {
		found->cause = full                          ? NEAP_TEXT_NEIGHBOURS
			       : known(found->allowed_bytes) ? NEAP_TEXT_LIMIT
							     : NEAP_TEXT_REFUSED;
		return;
	}
	/* A scrap that happens to cover a small request is not why a device that others fill is full. */
	bool scrap = known(found->reserved_bytes) && cached < found->reserved_bytes / 10;
	bool crowded = known(found->total_bytes) && others >= missing && others >= found->total_bytes / 4;
	if (cached >= missing && !(scrap && crowded))
		found->cause = NEAP_TEXT_FRAGMENTATION;
	else if (others >= missing)
		found->cause = NEAP_TEXT_NEIGHBOURS;
	else if (cached + others >= missing)
		found->cause = NEAP_TEXT_BOTH;
	else
		found->cause = NEAP_TEXT_CAPACITY;
	uint64_t near = cached > missing ? cached - missing : missing - cached;
	found->close_call = near <= slack && slack > 0;
}

/* Whether `words` stand within the text. */
static bool stand(const char *text, size_t length, const char *words)
{
	return memmem(text, length, words, strlen(words)) != NULL;
}

/* The bytes that openings begin with. A log is long, and few of its bytes are among them. */
static void find_first_bytes(bool first[256])
{
	memset(first, 0, 256 * sizeof *first);
	for (size_t i = 0; i < sizeof openings / sizeof openings[0]; i++)
		first[(unsigned char)openings[i].words[0]] = true;
}

/* The opening at `text`, or NULL. */
static const struct opening *opening_at(const char *text, size_t length)
{
	for (size_t i = 0; i < sizeof openings / sizeof openings[0]; i++) {
		const struct opening *opening = &openings[i];
		size_t n = strlen(opening->words);
		if (n > length || text[0] != opening->words[0] || memcmp(text, opening->words, n) != 0)
			continue;
		size_t soon = length - n < SOON ? length - n : SOON;
		if (!opening->soon || stand(text + n, soon, opening->soon))
			return opening;
	}
	return NULL;
}

static void clear(struct neap_oom_text *found, size_t position)
{
	*found = (struct neap_oom_text){.position = position, .gpu = -1};
	uint64_t *const fields[] = {&found->tried_bytes,   &found->total_bytes,     &found->free_bytes,
				    &found->allowed_bytes, &found->process_bytes,   &found->allocated_bytes,
				    &found->private_bytes, &found->cached_bytes,    &found->reserved_bytes,
				    &found->others_bytes,  &found->shortfall_bytes, &found->weights_bytes,
				    &found->outside_bytes, &found->activation_bytes};
	for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
		*fields[i] = NEAP_OOM_TEXT_UNKNOWN;
}

bool neap_oom_text_bare(const struct neap_oom_text *found)
{
	return !known(found->tried_bytes) && !known(found->total_bytes) && !known(found->allowed_bytes) &&
	       !known(found->weights_bytes) && !known(found->shortfall_bytes);
}

/* `before`: the part of the log between the previous message and this one. */
static void read_message(const char *text, size_t length, const char *before, size_t before_length,
			 struct neap_oom_text *found)
{
	struct words words;

	if (found->wording == NEAP_WORDING_VLLM)
		neap_oom_vllm_read(before, before_length, found);
	else if (found->wording == NEAP_WORDING_SLURM)
		neap_oom_slurm_read(before, before_length, text, length, found);
	plain_words(text, length, &words);
	if (found->wording == NEAP_WORDING_RESERVED)
		read_figures(words.text, found);
	else if (found->wording == NEAP_WORDING_ASYNC)
		read_async(words.text, found);
	else if (found->wording == NEAP_WORDING_JAX)
		read_jax(words.text, found);
	else
		return;
	complete(found);
	decide(found);
}

enum neap_status neap_oom_text_next(const char *text, size_t length, size_t *position,
				    struct neap_oom_text *ret_found, struct neap_error *err)
{
	struct neap_oom_text found;
	const struct opening *opening = NULL;
	size_t from = *position, at = from;
	bool first[256];

	find_first_bytes(first);
	for (; at < length && !opening; at++)
		if (first[(unsigned char)text[at]])
			opening = opening_at(text + at, length - at);
	if (!opening)
		return neap_fail(err, NEAP_ENOENT, "no out-of-memory message in the text");
	at--;
	clear(&found, at);
	snprintf(found.backend, sizeof found.backend, "%s", opening->backend);
	found.wording = opening->wording;
	/* The message ends where the next one begins, at the latest. */
	size_t end = at + strlen(opening->words);
	*position = end;
	while (end < length && end - at < 2 * MESSAGE_CAPACITY &&
	       !(first[(unsigned char)text[end]] && opening_at(text + end, length - end)))
		end++;
	from = at - from > BEFORE ? at - BEFORE : from;
	read_message(text + at, end - at, text + from, at - from, &found);
	*ret_found = found;
	return NEAP_OK;
}

const char *neap_oom_text_cause_name(enum neap_oom_text_cause cause)
{
	static const char *const names[] = {
		[NEAP_TEXT_UNKNOWN] = "unknown",       [NEAP_TEXT_REQUEST] = "request",
		[NEAP_TEXT_LIMIT] = "limit",           [NEAP_TEXT_FRAGMENTATION] = "fragmentation",
		[NEAP_TEXT_NEIGHBOURS] = "neighbours", [NEAP_TEXT_BOTH] = "neighbours and fragmentation",
		[NEAP_TEXT_CAPACITY] = "capacity",     [NEAP_TEXT_REFUSED] = "refused",
		[NEAP_TEXT_HOST] = "host memory",
	};
	return names[cause];
}

const char *neap_oom_wording_name(enum neap_oom_wording wording)
{
	static const char *const names[] = {
		[NEAP_WORDING_CACHED] = "PyTorch 1.0 to 1.4",
		[NEAP_WORDING_RESERVED] = "PyTorch 1.5 to 2.0",
		[NEAP_WORDING_SENTENCES] = "PyTorch 2.1 or later",
		[NEAP_WORDING_BARE] = "the driver's own words",
		[NEAP_WORDING_ASYNC] = "PyTorch's backend cudaMallocAsync",
		[NEAP_WORDING_JAX] = "JAX",
		[NEAP_WORDING_LIBRARY] = "a library's error code",
		[NEAP_WORDING_VLLM] = "vLLM",
		[NEAP_WORDING_SLURM] = "Slurm",
	};
	return names[wording];
}
