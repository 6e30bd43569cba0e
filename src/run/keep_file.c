/* run/keep_file.c: follows a recording, and writes the file of kept events. See keep.h. */
#include "run/keep_internal.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PART_EVENTS  16384u
#define FEED_EVENTS  256u   /* of a ring, read at once */
#define PIECE_EVENTS 65536u /* of the file, rewritten at once */
#define LEVELS       4      /* of rewriting: see `stays` */

static enum neap_status write_at(int fd, const void *bytes, size_t length, uint64_t offset, struct neap_error *err)
{
	for (size_t done = 0; done < length;) {
		ssize_t put = pwrite(fd, (const char *)bytes + done, length - done, (off_t)(offset + done));
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return neap_fail_errno(err, put ? errno : EIO, "writing the history beside a recording");
		done += (size_t)put;
	}
	return NEAP_OK;
}

static uint64_t most_events(const struct neap_keep *keep)
{
	uint64_t events = (keep->bytes - NEAP_KEPT_HEADER_BYTES) / sizeof(struct neap_event);
	return events < NEAP_KEPT_EVENTS_MAX ? events : NEAP_KEPT_EVENTS_MAX;
}

enum neap_status neap_keep_begin(struct neap_keep *keep, const char *recording,
				 const struct neap_keep_options *options, struct neap_error *err)
{
	*keep = (struct neap_keep){.follow = {.fd = -1}, .fd = -1, .bytes = options->bytes};
	if (!neap_record_beside(recording, "kept.", keep->path))
		return neap_fail(err, NEAP_ENOENT, "%.200s has no name beside which a history could be kept",
				 recording);
	enum neap_status status = neap_record_follow_open(recording, &keep->follow, err);
	if (status)
		return status;
	uint64_t quarter = keep->follow.capacity[NEAP_RECORD_ALLOCATIONS] / 4;
	keep->bytes = keep->bytes ? keep->bytes : NEAP_KEEP_BYTES;
	keep->part_events = options->part_events    ? options->part_events
			    : quarter < PART_EVENTS ? quarter + 1
						    : PART_EVENTS;
	keep->header = (struct neap_kept_header){.magic = NEAP_KEPT_MAGIC,
						 .version = NEAP_KEPT_VERSION,
						 .header_bytes = NEAP_KEPT_HEADER_BYTES,
						 .pid = keep->follow.pid,
						 .start_ticks = keep->follow.start_ticks};
	keep->open = calloc(keep->part_events + NEAP_KEEP_SPARE, sizeof *keep->open);
	keep->tail = calloc(keep->part_events, sizeof *keep->tail);
	if (keep->open && keep->tail)
		return NEAP_OK;
	neap_keep_end(keep);
	return neap_fail(err, NEAP_ENOMEM, "out of host memory for the history of a recording");
}

void neap_keep_end(struct neap_keep *keep)
{
	neap_record_follow_close(&keep->follow);
	neap_map_fini(&keep->live);
	neap_map_fini(&keep->born);
	if (keep->fd >= 0)
		close(keep->fd);
	free(keep->open);
	free(keep->tail);
	free(keep->spans);
	*keep = (struct neap_keep){.follow = {.fd = -1}, .fd = -1, .full = true};
}

/* --- rewriting ---------------------------------------------------------------------------------------------------
 */

/* Whether a span that is still whole stays whole at this level. `last`: it is the last of its kind; `before`: how
 * many spans of its kind come before it. */
static bool stays(enum neap_keep_why why, bool last, size_t before, int level)
{
	switch (why) {
	case NEAP_KEEP_FIRST:
		return level < 4;
	case NEAP_KEEP_OOM:
		return last || level < 4;
	case NEAP_KEEP_PEAK:
		return last;
	case NEAP_KEEP_MINUTE:
		return level < 2 || (level == 2 && before % 2 == 0);
	default:
		return false;
	}
}

/* Chooses the spans that stay whole: in a run of weeks there are tens of thousands. */
static void choose_whole(const struct neap_keep *keep, int level, bool *ret_whole)
{
	size_t last[NEAP_KEEP_OOM + 1] = {0}, before[NEAP_KEEP_OOM + 1] = {0};

	for (size_t i = 0; i < keep->span_count; i++)
		last[keep->spans[i].why] = i;
	for (size_t i = 0; i < keep->span_count; i++) {
		enum neap_keep_why why = keep->spans[i].why;
		ret_whole[i] = stays(why, i == last[why], before[why]++, level);
	}
}

static uint64_t span_end(const struct neap_keep *keep, size_t at)
{
	return at + 1 < keep->span_count ? keep->spans[at + 1].first : keep->header.events;
}

/* A file that is being rewritten. It is not flushed to disk, which could take long: it need not survive a crash of
 * the machine. */
struct rewriting {
	char path[NEAP_RECORD_PATH + 32];
	int fd;
	struct neap_kept_header header;
	struct neap_event *piece;
	struct neap_keep_span *spans;
	size_t span_count;
	bool *whole; /* which of the old spans stay whole */
};

static enum neap_status copy_events(const struct neap_keep *keep, struct rewriting *to, uint64_t first, uint64_t end,
				    bool thin, bool join, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;

	while (!status && first < end) {
		size_t count = end - first < PIECE_EVENTS ? (size_t)(end - first) : PIECE_EVENTS, kept = count;
		status = neap_kept_read(keep->fd, first, to->piece, count, err);
		first += count;
		if (status)
			break;
		if (thin)
			kept = neap_keep_thin(to->piece, count);
		if (join)
			kept = neap_keep_join_steps(to->piece, kept);
		uint64_t offset = NEAP_KEPT_HEADER_BYTES + to->header.events * sizeof *to->piece;
		to->header.thinned_events += count - kept;
		to->header.events += kept;
		status = write_at(to->fd, to->piece, kept * sizeof *to->piece, offset, err);
	}
	return status;
}

static enum neap_status copy_spans(const struct neap_keep *keep, struct rewriting *to, int level,
				   struct neap_error *err)
{
	enum neap_status status = NEAP_OK;

	choose_whole(keep, level, to->whole);
	for (size_t i = 0, next; !status && i < keep->span_count; i = next) {
		bool whole = to->whole[i];
		uint64_t first = keep->spans[i].first;
		to->spans[to->span_count++] =
			(struct neap_keep_span){to->header.events, whole ? keep->spans[i].why : NEAP_KEEP_THINNED};
		for (next = i; next < keep->span_count && (next == i || (!whole && !to->whole[next])); next++)
			to->header.thinned_steps += !whole && keep->spans[next].why != NEAP_KEEP_THINNED;
		status = copy_events(keep, to, first, span_end(keep, next - 1), !whole, !whole && level >= 3, err);
	}
	return status;
}

static enum neap_status begin_rewriting(const struct neap_keep *keep, struct rewriting *to, struct neap_error *err)
{
	to->piece = calloc(PIECE_EVENTS, sizeof *to->piece);
	to->spans = calloc(keep->span_count + 1, sizeof *to->spans);
	to->whole = calloc(keep->span_count + 1, sizeof *to->whole);
	if (!to->piece || !to->spans || !to->whole)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory while rewriting %s", keep->path);
	snprintf(to->path, sizeof to->path, "%s.tmp-%d", keep->path, (int)getpid());
	unlink(to->path);
	to->fd = open(to->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	return to->fd < 0 ? neap_fail_errno(err, errno, "creating %s", to->path) : NEAP_OK;
}

/* Writes the file again, with fewer events. */
static enum neap_status rewrite(struct neap_keep *keep, int level, struct neap_error *err)
{
	struct rewriting to = {.fd = -1, .header = keep->header};

	to.header.events = 0;
	enum neap_status status = begin_rewriting(keep, &to, err);
	if (!status)
		status = copy_spans(keep, &to, level, err);
	if (!status)
		status = write_at(to.fd, &to.header, sizeof to.header, 0, err);
	if (!status && rename(to.path, keep->path))
		status = neap_fail_errno(err, errno, "renaming %s", to.path);
	if (!status) {
		struct neap_keep_span *spans = keep->spans;
		int fd = keep->fd;
		keep->fd = to.fd;
		keep->spans = to.spans;
		keep->span_count = to.span_count;
		keep->header = to.header;
		keep->tail_count = 0;
		to.spans = spans;
		to.fd = fd;
	} else if (to.fd >= 0) {
		unlink(to.path);
	}
	if (to.fd >= 0)
		close(to.fd);
	free(to.piece);
	free(to.spans);
	free(to.whole);
	return status;
}

/* --- appending ---------------------------------------------------------------------------------------------------
 */

static enum neap_status create(struct neap_keep *keep, struct neap_error *err)
{
	unlink(keep->path); /* left by an earlier run in this folder */
	keep->fd = open(keep->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (keep->fd < 0)
		return neap_fail_errno(err, errno, "creating %s", keep->path);
	if (ftruncate(keep->fd, NEAP_KEPT_HEADER_BYTES))
		return neap_fail_errno(err, errno, "creating %s", keep->path);
	return NEAP_OK;
}

static enum neap_status make_room(struct neap_keep *keep, size_t count, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;

	if (keep->header.events + count <= most_events(keep))
		return NEAP_OK;
	/* Aim at three quarters: if every second step is thinned, more than a half remains, since its net effect
	 * stays. */
	for (int level = 1; !status && level <= LEVELS && keep->header.events + count > most_events(keep) / 4 * 3;
	     level++)
		status = rewrite(keep, level, err);
	if (!status && keep->header.events + count > most_events(keep))
		status = neap_fail(err, NEAP_ENOSPC, "the history of process %llu is longer than %llu bytes",
				   (unsigned long long)keep->header.pid, (unsigned long long)keep->bytes);
	return status;
}

static enum neap_status add_span(struct neap_keep *keep, enum neap_keep_why why, struct neap_error *err)
{
	if (keep->span_count && keep->spans[keep->span_count - 1].why == NEAP_KEEP_THINNED &&
	    why == NEAP_KEEP_THINNED)
		return NEAP_OK;
	struct neap_keep_span *spans = reallocarray(keep->spans, keep->span_count + 1, sizeof *spans);
	if (!spans)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory for the steps of a history");
	keep->spans = spans;
	spans[keep->span_count++] = (struct neap_keep_span){keep->header.events, why};
	return NEAP_OK;
}

static enum neap_status write_header(struct neap_keep *keep, struct neap_error *err)
{
	return write_at(keep->fd, &keep->header, sizeof keep->header, 0, err);
}

/* First the events, then the header that counts them. */
static enum neap_status write_events(struct neap_keep *keep, const struct neap_event *events, size_t count,
				     struct neap_error *err)
{
	enum neap_status status = write_at(keep->fd, events, count * sizeof *events,
					   NEAP_KEPT_HEADER_BYTES + keep->header.events * sizeof *events, err);

	if (status)
		return status;
	keep->header.events += count;
	keep->header.rewriting = 0;
	memcpy(keep->header.next, keep->read, sizeof keep->read);
	return write_header(keep, err);
}

/* Joins thinned events with those at the file's end, thins them together, and writes the result in their place. */
static enum neap_status extend_tail(struct neap_keep *keep, size_t count, struct neap_error *err)
{
	size_t all = keep->tail_count + count;

	memcpy(keep->tail + keep->tail_count, keep->open, count * sizeof *keep->tail);
	keep->tail_count = neap_keep_thin(keep->tail, all);
	keep->header.thinned_events += all - keep->tail_count;
	keep->header.events = keep->tail_first;
	keep->header.rewriting = 1;
	memcpy(keep->header.next, keep->tail_read, sizeof keep->tail_read);
	enum neap_status status = write_header(keep, err);
	return status ? status : write_events(keep, keep->tail, keep->tail_count, err);
}

/* Writes the first `count` of the open events. */
static enum neap_status append(struct neap_keep *keep, enum neap_keep_why why, size_t count, struct neap_error *err)
{
	enum neap_status status = keep->fd < 0 ? create(keep, err) : NEAP_OK;

	if (!status)
		status = make_room(keep, count, err);
	if (status)
		return status;
	if (why == NEAP_KEEP_THINNED && keep->tail_count > 0 && keep->tail_count + count <= keep->part_events)
		return extend_tail(keep, count, err);
	keep->tail_count = 0;
	if (why == NEAP_KEEP_THINNED && count <= keep->part_events) {
		memcpy(keep->tail, keep->open, count * sizeof *keep->tail);
		keep->tail_count = count;
		keep->tail_first = keep->header.events;
		memcpy(keep->tail_read, keep->header.next, sizeof keep->tail_read);
	}
	status = add_span(keep, why, err);
	return status ? status : write_events(keep, keep->open, count, err);
}

/* Ends the open step, or a part of it. */
static enum neap_status close_step(struct neap_keep *keep, bool part, struct neap_error *err)
{
	size_t count = keep->open_count;

	keep->step.part = part;
	enum neap_keep_why why = neap_keep_choose(&keep->choice, &keep->step);
	if (why == NEAP_KEEP_THINNED) {
		count = neap_keep_thin(keep->open, count);
		keep->header.thinned_events += keep->open_count - count;
		keep->header.thinned_steps += !part;
	}
	keep->open_count = 0;
	keep->step = (struct neap_keep_step){0};
	return append(keep, why, count, err);
}

/* --- taking ------------------------------------------------------------------------------------------------------
 */

static enum neap_status take(struct neap_keep *keep, struct neap_event *event, struct neap_error *err)
{
	const struct neap_event_held *held = neap_event_as_held(event);
	struct neap_keep_step *step = &keep->step;

	if (!keep->open_count)
		step->begin_ns = event->time_ns;
	if (!neap_keep_account(keep, event))
		return NEAP_OK;
	keep->open[keep->open_count++] = *event;
	if (held && event->kind < NEAP_EVENT_FIRST_JOURNAL &&
	    held->allocated_bytes > step->peak_bytes[neap_keep_device(event)])
		step->peak_bytes[neap_keep_device(event)] = held->allocated_bytes;
	step->failed |= event->kind == NEAP_EVENT_OOM;
	if (event->kind == NEAP_EVENT_STEP && event->step.number != keep->last_step) {
		keep->last_step = event->step.number;
		return close_step(keep, false, err);
	}
	return keep->open_count >= keep->part_events ? close_step(keep, true, err) : NEAP_OK;
}

/* Events of a ring, read ahead. */
struct feed {
	enum neap_record_ring ring;
	struct neap_event events[FEED_EVENTS];
	size_t count, at;
	bool dry;
};

static void note_lost(struct neap_keep *keep, enum neap_record_ring ring, uint64_t lost)
{
	if (ring == NEAP_RECORD_JOURNAL) {
		keep->header.journal_lost += lost;
	} else if (!keep->seen) {
		keep->header.allocations_lost += lost;
	} else {
		keep->header.allocations_missing += lost;
		keep->missed = true;
		keep->missed_births = keep->births;
		memset(keep->resync, true, sizeof keep->resync);
	}
}

/* The ring's index after an event that was read up to `next`. */
static uint64_t index_behind(uint64_t next, const struct neap_event *event)
{
	return next - (uint32_t)((uint32_t)next - event->sequence);
}

static enum neap_status fill(struct neap_keep *keep, struct feed *feed, struct neap_error *err)
{
	uint64_t lost = 0;

	if (feed->at < feed->count || feed->dry)
		return NEAP_OK;
	feed->at = feed->count = 0;
	enum neap_status status = neap_record_follow_read(&keep->follow, feed->ring, false, feed->events, FEED_EVENTS,
							  &feed->count, &lost, err);
	feed->dry = !feed->count;
	if (status || !lost)
		return status;
	note_lost(keep, feed->ring, lost);
	uint64_t next = keep->follow.next[feed->ring];
	keep->read[feed->ring] = feed->count ? index_behind(next, feed->events) - 1 : next;
	return NEAP_OK;
}

/* The next event of both in order of time; NULL: there is none. */
static struct feed *choose(struct feed *journal, struct feed *allocations)
{
	bool first = journal->at < journal->count, second = allocations->at < allocations->count;

	if (first && second)
		return allocations->events[allocations->at].time_ns <= journal->events[journal->at].time_ns
			       ? allocations
			       : journal;
	return first ? journal : second ? allocations : NULL;
}

/* The index of the first allocation event that is left in the ring. */
static enum neap_status find_newest(const struct neap_keep *keep, uint64_t *ret_index, struct neap_error *err)
{
	uint64_t written = 0, quarter = keep->follow.capacity[NEAP_RECORD_ALLOCATIONS] / 4;
	enum neap_status status = neap_record_follow_written(&keep->follow, NEAP_RECORD_ALLOCATIONS, &written, err);

	if (!status)
		*ret_index = written > quarter ? written - quarter : 0;
	return status;
}

static enum neap_status take_new(struct neap_keep *keep, uint64_t until_ns, struct neap_error *err)
{
	struct feed journal = {.ring = NEAP_RECORD_JOURNAL}, allocations = {.ring = NEAP_RECORD_ALLOCATIONS};
	uint64_t newest = 0;
	enum neap_status status = find_newest(keep, &newest, err);

	for (struct feed *feed; !status;) {
		status = fill(keep, &journal, err);
		if (!status)
			status = fill(keep, &allocations, err);
		feed = choose(&journal, &allocations);
		if (status || !feed || feed->events[feed->at].time_ns > until_ns)
			break;
		struct neap_event *event = &feed->events[feed->at];
		uint64_t behind = index_behind(keep->follow.next[feed->ring], event);
		if (feed == &allocations && behind > newest)
			break;
		feed->at++;
		keep->read[feed->ring] = behind;
		status = take(keep, event, err);
	}
	memcpy(keep->follow.next, keep->read, sizeof keep->read); /* the rest will be read again */
	return status;
}

enum neap_status neap_keep_poll(struct neap_keep *keep, uint64_t until_ns, struct neap_error *err)
{
	if (keep->full)
		return NEAP_OK;
	enum neap_status status = take_new(keep, until_ns, err);
	if (status)
		keep->full = true;
	return status;
}
