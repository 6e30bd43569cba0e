/* trace/formats.h: one reader per format. Each takes an input that stands at the file's first byte and fills a build.
 * On failure it fills an error; the message continues "reading PATH: ". */
#ifndef NEAP_TRACE_FORMATS_H
#define NEAP_TRACE_FORMATS_H

#include "trace/build.h"
#include "trace/input.h"

/* The text form:
 *
 *     a <id> <bytes> <stream>     allocate          m <name>   mark
 *     f <id>                      free              s          end of a training step
 *     r <id> <stream>             record_stream     e          empty the cache
 *     # a comment, as are empty lines
 *
 * Blanks separate words; a name is the rest of its line. An id is live from its `a` to its `f` and may then be
 * used again; `f` and `r` of an id that is not live are errors. Lines hold at most 65535 bytes. */
#define NEAP_TEXT_BYTES_MAX ((1ull << 47) - 1) /* of one allocation */
enum neap_status neap_text_read(struct neap_input *input, struct neap_build *build, struct neap_error *err);

/* A PyTorch snapshot as torch.cuda.memory._dump_snapshot and _snapshot write it, or what memory_snapshot() gave, in
 * pickle protocols 2 to 5. See pickle.h. Positions in errors are bytes of the (decompressed) file. */
enum neap_status neap_pickle_read(struct neap_input *input, struct neap_build *build, struct neap_error *err);

/* neap's own recording (record.h), of a live or an exited process. A tag becomes a stack of one frame with that name.
 * Errors name the path themselves. */
enum neap_status neap_recording_read(const char *path, struct neap_build *build, struct neap_error *err);

#endif
