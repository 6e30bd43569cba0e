/* trace/stacks.c: see stacks.h. */
#include "trace/stacks.h"

#include "base/file.h"
#include "trace/record.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A piece of the text: a line, or a field of one. */
struct piece {
	const char *at;
	size_t length;
};

/* Cuts off the text before the next `end`, or all that remains. */
static struct piece cut(struct piece *rest, char end)
{
	const char *found = memchr(rest->at, end, rest->length);
	struct piece piece = {rest->at, found ? (size_t)(found - rest->at) : rest->length};
	size_t used = piece.length + (found ? 1 : 0);

	rest->at += used;
	rest->length -= used;
	return piece;
}

static bool begins(struct piece piece, const char *with)
{
	return piece.length >= strlen(with) && !memcmp(piece.at, with, strlen(with));
}

/* Whether the piece is a number of at most nine digits. */
static bool number_of(struct piece piece, uint32_t *ret_number)
{
	uint32_t number = 0;

	if (piece.length == 0 || piece.length > 9)
		return false;
	for (size_t i = 0; i < piece.length; i++) {
		if (piece.at[i] < '0' || piece.at[i] > '9')
			return false;
		number = number * 10 + (uint32_t)(piece.at[i] - '0');
	}
	*ret_number = number;
	return true;
}

/* "torch 2.15.0+cu130": release 15 of PyTorch 2. */
static void take_release(struct piece field, struct neap_trace *trace)
{
	struct piece rest = {field.at + strlen("torch "), field.length - strlen("torch ")};
	struct piece major = cut(&rest, '.'), minor = cut(&rest, '.');
	uint32_t number = 0;

	if (major.length == 1 && *major.at == '2' && number_of(minor, &number) && number < 1000)
		trace->torch_from = trace->torch_to = number;
}

static void take_settings(struct piece line, struct neap_build *build)
{
	struct neap_trace *trace = build->trace;

	trace->torch = true;
	trace->settings.known = true;
	while (line.length > 0) {
		struct piece field = cut(&line, '\t');
		if (begins(field, "torch "))
			take_release(field, trace);
		else if (begins(field, "conf "))
			trace->settings.conf = neap_build_text(build, field.at + 5, field.length - 5);
	}
}

/* Reads the frames of one line. False: it is not a stack. */
static bool take_stack(struct piece line, struct neap_build *build, uint32_t *ret_call)
{
	uint32_t frames[NEAP_STACKS_FRAMES];
	size_t count = 0;

	while (line.length > 0 && count < NEAP_STACKS_FRAMES) {
		struct piece file = cut(&line, '\t'), row = cut(&line, '\t'), name = cut(&line, '\t');
		uint32_t number = 0;
		if (!number_of(row, &number))
			return false;
		uint32_t file_text = neap_build_text(build, file.at, file.length);
		frames[count++] =
			neap_build_frame(build, file_text, neap_build_text(build, name.at, name.length), number);
	}
	if (count == 0) {
		uint32_t name = neap_build_text(build, NEAP_STACKS_THREAD, strlen(NEAP_STACKS_THREAD));
		frames[count++] = neap_build_frame(build, 0, name, 0);
	}
	*ret_call = neap_build_stack(build, frames, count);
	return true;
}

bool neap_stacks_parse(const char *text, size_t length, struct neap_build *build, struct neap_stacks *ret_stacks)
{
	struct piece rest = {text, length}, line = cut(&rest, '\n');
	struct neap_stacks stacks = {0};

	/* The first line is another, or is not whole. */
	if (!begins(line, NEAP_STACKS_MAGIC) || line.at + line.length == text + length)
		return false;
	stacks.calls = calloc(NEAP_STACKS_MAX, sizeof *stacks.calls);
	if (!stacks.calls)
		build->failed = NEAP_ENOMEM;
	take_settings(line, build);
	while (!build->failed && memchr(rest.at, '\n', rest.length)) {
		const char *begin = rest.at;
		line = cut(&rest, '\n');
		uint32_t number = NEAP_STACKS_MAX, call = 0;
		bool read = number_of(cut(&line, '\t'), &number) && number < NEAP_STACKS_MAX &&
			    take_stack(line, build, &call);
		if (!read)
			neap_build_warn(build, (uint64_t)(begin - text), "a line of its stacks is not a stack");
		else if (!stacks.calls[number])
			stacks.calls[number] = call;
		if (read && number >= stacks.count)
			stacks.count = number + 1;
	}
	*ret_stacks = stacks;
	return true;
}

/* Finds the file beside the recording. Refuses a FIFO, because opening it would wait for its writer. */
static bool find_beside(const char *recording, const char *prefix, char ret_path[NEAP_RECORD_PATH])
{
	struct stat info;
	return neap_record_beside(recording, prefix, ret_path) && !stat(ret_path, &info) && S_ISREG(info.st_mode);
}

bool neap_stacks_read(const char *recording, struct neap_build *build, struct neap_stacks *ret_stacks)
{
	char path[NEAP_RECORD_PATH];
	struct neap_buffer text = {0};
	bool found = (find_beside(recording, "stacks.", path) || find_beside(recording, "history.", path)) &&
		     !neap_file_read(path, NEAP_STACKS_BYTES, &text, NULL) &&
		     neap_stacks_parse(neap_buffer_string(&text), text.length, build, ret_stacks);

	neap_buffer_fini(&text);
	return found;
}

void neap_stacks_fini(struct neap_stacks *stacks)
{
	free(stacks->calls);
	*stacks = (struct neap_stacks){0};
}
