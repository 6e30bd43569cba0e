/* The end of a recording's journal, for readers that sample it several times a second: they read the header and the
 * newest events, 48 KiB, instead of 5 MB. Events that are being written are skipped. */
#include "trace/record.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEWEST 512 /* events */

/* Calls `visit` for each of the newest events, newest first, until it returns false. */
static void each_newest(int fd, const struct neap_record_header *header,
			bool (*visit)(void *context, const struct neap_record_header *header,
				      const struct neap_event *event),
			void *context)
{
	uint64_t written = header->journal_written, capacity = header->journal_capacity;
	struct neap_event event;
	for (uint64_t back = 1; back <= NEWEST && back <= written && back < capacity; back++) {
		uint64_t index = written - back;
		uint64_t offset = NEAP_RECORD_HEADER_BYTES + index % capacity * sizeof event;
		if (pread(fd, &event, sizeof event, (off_t)offset) != (ssize_t)sizeof event)
			return;
		if (event.sequence == (uint32_t)(index + 1) && !visit(context, header, &event))
			return;
	}
}

struct search {
	uint64_t step;
	double loss;
};

static bool search_event(void *context, const struct neap_record_header *header, const struct neap_event *event)
{
	struct search *search = context;
	const struct neap_event_step *step = neap_event_as_step(event);
	const struct neap_event_metric *metric = neap_event_as_metric(event);
	if (step && !search->step)
		search->step = step->number;
	if (metric && isnan(search->loss) && metric->name < NEAP_RECORD_NAMES &&
	    !strncmp(header->names[metric->name], "loss", NEAP_RECORD_NAME_ROOM))
		search->loss = metric->value;
	return !search->step || isnan(search->loss);
}

enum neap_status neap_record_last_step(const char *path, uint64_t *ret_step, double *ret_loss, struct neap_error *err)
{
	struct neap_record_header header;
	struct search search = {.loss = (double)NAN};
	struct stat info;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return neap_fail_errno(err, errno, "opening the recording %.150s", path);
	bool fine = !fstat(fd, &info) && S_ISREG(info.st_mode) &&
		    pread(fd, &header, sizeof header, 0) == (ssize_t)sizeof header &&
		    !memcmp(header.magic, NEAP_RECORD_MAGIC, sizeof header.magic) &&
		    header.version == NEAP_RECORD_VERSION && header.journal_capacity > 0 &&
		    header.journal_capacity <= (uint64_t)info.st_size / sizeof(struct neap_event);
	if (fine)
		each_newest(fd, &header, search_event, &search);
	close(fd);
	if (!fine)
		return neap_fail(err, NEAP_EPARSE, "%.150s is not a recording", path);
	if (!search.step)
		return neap_fail(err, NEAP_ENOENT, "%.150s tells of no step", path);
	*ret_step = search.step;
	*ret_loss = search.loss;
	return NEAP_OK;
}
