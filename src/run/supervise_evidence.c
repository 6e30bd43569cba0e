/* run/supervise_evidence.c: reads a start's recordings and logs: its OOMs with their cards, why it was asked to stop.
 */
#include "run/supervise_internal.h"

#include "analyze/oom.h"
#include "analyze/run.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "report/report.h"
#include "run/simulated.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CARDS_SHOWN 4u     /* cards shown for one start; later OOMs mostly repeat the same findings */
#define TAIL_BYTES  65536u /* of stderr.log */
#define RECORDINGS  64u
/* Time limit for the replays behind a card: the run may still be running. */
#define CARD_PATIENCE_NS (3 * NEAP_NS_PER_S)

/* The PID in "record.PID", or after another prefix; 0 for another name. */
static pid_t file_pid(const char *name, const char *prefix)
{
	uint64_t pid = 0;
	size_t length = strlen(prefix);
	if (strncmp(name, prefix, length) != 0 || neap_u64_parse(name + length, &pid, NULL) || pid > INT32_MAX)
		return 0;
	return (pid_t)pid;
}

/* Waits before a retry: host memory may be free soon, and the outcome depends on the file. False: no more retries. */
static bool wait_for_memory(uint64_t *pause_ns)
{
	if (*pause_ns >= NEAP_NS_PER_S)
		return false;
	*pause_ns = *pause_ns ? 2 * *pause_ns : 10 * NEAP_NS_PER_MS;
	neap_clock_sleep(neap_clock_system(), *pause_ns);
	return true;
}

static DIR *open_patiently(const char *path)
{
	uint64_t pause_ns = 0;
	DIR *folder;
	while (!(folder = opendir(path)) && errno == ENOMEM && wait_for_memory(&pause_ns))
		;
	return folder;
}

void neap_facts_each_file(struct neap_supervise *run, const char *prefix,
			  void (*visit)(struct neap_supervise *run, const char *path, pid_t pid, void *context),
			  void *context)
{
	DIR *folder = open_patiently(run->folder);
	if (!folder)
		return;
	char names[RECORDINGS][32];
	size_t count = 0;
	for (struct dirent *entry; count < RECORDINGS && (entry = readdir(folder));)
		if (file_pid(entry->d_name, prefix) && strlen(entry->d_name) < sizeof names[0])
			strcpy(names[count++], entry->d_name);
	closedir(folder);
	for (size_t i = 0; i < count; i++) {
		char path[4200];
		if (!neap_path_join(path, sizeof path, run->folder, names[i]))
			visit(run, path, file_pid(names[i], prefix), context);
	}
}

void neap_facts_each_recording(struct neap_supervise *run,
			       void (*visit)(struct neap_supervise *run, const char *path, pid_t pid, void *context),
			       void *context)
{
	neap_facts_each_file(run, "record.", visit, context);
}

static void meet(struct neap_supervise *run, const char *path, pid_t pid, void *context)
{
	struct neap_record record = {0};
	(void)context;
	if (neap_observe_met(&run->observe, pid) || neap_facts_read(path, &record, NULL))
		return;
	neap_observe_recorded(&run->observe, &record, path);
	neap_record_fini(&record);
}

void neap_facts_meet_recorded(struct neap_supervise *run) { neap_facts_each_recording(run, meet, NULL); }

static struct neap_observed *find_observed(struct neap_supervise *run, pid_t pid)
{
	for (size_t i = 0; i < run->observe.attached_count; i++)
		if (run->observe.attached[i].pid == pid)
			return &run->observe.attached[i];
	return NULL;
}

/* Makes the card of a recording's OOM, with the findings of the replays that end before the deadline. Without a
 * trace, makes the card from the journal alone. */
static bool make_card(const char *path, const struct neap_record *record, size_t index, struct neap_deadline deadline,
		      struct neap_oom_card *ret_card)
{
	const struct neap_trace_oom_options options = {.deadline = deadline};
	struct neap_trace *trace = NULL;
	bool made = neap_trace_read(path, &trace, NULL) == NEAP_OK &&
		    neap_trace_oom_recorded(trace, index, &options, ret_card, NULL) == NEAP_OK;

	neap_trace_free(trace);
	return made || neap_oom_card(record, index, ret_card, NULL) == NEAP_OK;
}

/* Shows cards of a recording's OOMs from number `first` on, up to CARDS_SHOWN. Returns how many OOMs it has. */
static size_t show_ooms(struct neap_supervise *run, const char *path, const struct neap_record *record, size_t first)
{
	const struct neap_deadline deadline = neap_deadline_in(neap_supervise_clock(run), CARD_PATIENCE_NS);
	size_t count = neap_oom_count(record);
	for (size_t i = first; i < count; i++, run->cards_shown++) {
		struct neap_oom_card card;
		if (run->cards_shown == CARDS_SHOWN && run->options.show)
			neap_log(run->options.log, NEAP_LOG_WARNING,
				 "Out of device memory again; further OOM cards are not shown");
		if (run->cards_shown >= CARDS_SHOWN || !run->options.show ||
		    !make_card(path, record, i, deadline, &card))
			continue;
		neap_buffer_clear(&run->last_card);
		neap_report_oom_card(&run->last_card, &card);
		run->options.show(run->options.show_context, neap_buffer_string(&run->last_card));
	}
	return count;
}

void neap_facts_show_cards(struct neap_supervise *run)
{
	for (size_t i = 0; i < run->observe.attached_count; i++) {
		struct neap_observed *process = &run->observe.attached[i];
		struct neap_record record = {0};
		if (!process->ooms_rose || neap_record_read(process->record_path, &record, NULL))
			continue;
		process->cards_shown = show_ooms(run, process->record_path, &record, process->cards_shown);
		neap_record_fini(&record);
	}
}

void neap_facts_show_simulated(struct neap_supervise *run)
{
	const char *name = run->observe.now.name;
	if (run->simulated_reported || !run->monitor || neap_monitor_backend(run->monitor) != NEAP_BACKEND_SIM ||
	    !neap_simulated_is_used(run->folder))
		return;
	run->simulated_reported = true;
	neap_log(run->options.log, NEAP_LOG_WARNING, "simulated: no kernel runs (%s)%s",
		 name[0] ? name : "no device is watched",
		 getenv("NEAP_ESTIMATE") ? "" : "; files are written for real");
}

struct evidence_search {
	struct neap_evidence *evidence;
	uint64_t last_oom_ns;
};

/* Reads why a session asked its program to stop, if the program obeyed. */
static void read_stop_request(const struct neap_record *record, struct neap_evidence *evidence)
{
	const struct neap_event_request *request = neap_run_request(record);
	char below[NEAP_UNITS_CAPACITY], left[NEAP_UNITS_CAPACITY];

	if (!request || request->request != NEAP_TRAIN_STOP)
		return;
	if (request->high_step)
		snprintf(evidence->stop_text, sizeof evidence->stop_text,
			 "memory leaks: it would have ended at step %" PRIu64 " at the earliest", request->low_step);
	else if (request->max_steps)
		snprintf(evidence->stop_text, sizeof evidence->stop_text, "the %" PRIu64 " step%s of --max-steps",
			 request->max_steps, request->max_steps == 1 ? "" : "s");
	else
		snprintf(evidence->stop_text, sizeof evidence->stop_text, "%s below %s: %s were left",
			 neap_record_name(record, request->name), neap_size_format(request->threshold_bytes, below),
			 neap_size_format(request->left_bytes, left));
}

enum neap_status neap_facts_read(const char *path, struct neap_record *ret_record, struct neap_error *err)
{
	uint64_t pause_ns = 0;
	enum neap_status status;
	while ((status = neap_record_read(path, ret_record, err)) == NEAP_ENOMEM && wait_for_memory(&pause_ns))
		;
	return status;
}

/* Whether the training continued after its last OOM and finished a step on that device. */
static bool went_on(const struct neap_record *record)
{
	uint16_t device = 0;
	bool on = false;
	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		if (event->kind == NEAP_EVENT_OOM) {
			device = event->device;
			on = false;
		} else if (event->kind == NEAP_EVENT_STEP && event->device == device) {
			on = true;
		}
	}
	return on;
}

static uint64_t last_oom_ns(const struct neap_record *record)
{
	uint64_t time_ns = 0;
	for (size_t i = 0; i < record->journal_count; i++)
		if (record->journal[i].kind == NEAP_EVENT_OOM)
			time_ns = record->journal[i].time_ns;
	return time_ns;
}

/* Describes the last OOM and makes its card. The OOM counts even if its card cannot be made. */
static void describe_last_oom(struct neap_supervise *run, const char *path, pid_t pid,
			      const struct neap_record *record, size_t count, struct neap_evidence *evidence)
{
	struct neap_oom_card card = {0};
	char asked[NEAP_UNITS_CAPACITY], free_text[NEAP_UNITS_CAPACITY], step[40] = "before any step ended";
	neap_buffer_clear(&run->last_card);
	snprintf(evidence->oom_text, sizeof evidence->oom_text, "process %d ran out of device memory", (int)pid);
	/* Make it again: the card shown during the run does not name the rung taken. */
	if (!make_card(path, record, count - 1, neap_deadline_in(neap_supervise_clock(run), CARD_PATIENCE_NS), &card))
		return;
	run->model_alone = card.model_alone;
	neap_report_oom_card(&run->last_card, &card);
	if (run->last_card.failed)
		neap_buffer_clear(&run->last_card);
	if (card.step)
		snprintf(step, sizeof step, "at step %llu", (unsigned long long)card.step);
	snprintf(evidence->oom_text, sizeof evidence->oom_text,
		 "process %d asked for %s%s%s with %s free on the device, %s", pid,
		 neap_size_format(card.requested_bytes, asked), card.tag[0] ? " for " : "", card.tag,
		 neap_size_format(card.device_free_bytes, free_text), step);
}

static void gather(struct neap_supervise *run, const char *path, pid_t pid, void *context)
{
	struct evidence_search *search = context;
	struct neap_evidence *evidence = search->evidence;
	struct neap_record record = {0};
	struct neap_error err = {0};
	struct neap_observed *process = find_observed(run, pid);
	if (neap_facts_read(path, &record, &err)) {
		neap_log(run->options.log, NEAP_LOG_WARNING, "A recording cannot be used: %s", err.message);
		snprintf(evidence->unread_text, sizeof evidence->unread_text, "%s", err.message);
		if (process && process->ooms) { /* its statistics page counted them */
			evidence->ooms += process->ooms;
			evidence->recovered = false;
			snprintf(evidence->oom_text, sizeof evidence->oom_text, "process %d ran out of device memory",
				 (int)pid);
		}
		return;
	}
	read_stop_request(&record, evidence);
	size_t count = show_ooms(run, path, &record, process ? process->cards_shown : 0);
	if (process)
		process->cards_shown = count;
	if (count) {
		/* every process with an OOM must have continued */
		evidence->recovered = (evidence->ooms == 0 || evidence->recovered) && went_on(&record);
		if (last_oom_ns(&record) >= search->last_oom_ns) {
			search->last_oom_ns = last_oom_ns(&record);
			describe_last_oom(run, path, pid, &record, count, evidence);
		}
		evidence->ooms += count;
	}
	neap_record_fini(&record);
}

/* "oom.PID": the text of the error that ended a Python program (python/neap/hooks.py). Also written without --log. */
static void read_last_error(struct neap_supervise *run, const char *path, pid_t pid, void *context)
{
	struct neap_evidence *evidence = context;
	struct neap_buffer text = {0};
	(void)run, (void)pid;
	if (!evidence->stderr_line[0] && neap_file_read(path, TAIL_BYTES, &text, NULL) == NEAP_OK)
		neap_outcome_scan(neap_buffer_string(&text), text.length, NEAP_FAILURE_OOM, evidence->stderr_line,
				  sizeof evidence->stderr_line);
	neap_buffer_fini(&text);
}

void neap_facts_evidence(struct neap_supervise *run, struct neap_evidence *evidence)
{
	struct evidence_search search = {.evidence = evidence};
	neap_facts_show_simulated(run); /* that start may have ended before the first sample */
	neap_facts_each_recording(run, gather, &search);
	run->ooms += evidence->ooms;
	neap_facts_each_file(run, "oom.", read_last_error, evidence);
	if (!evidence->ooms && evidence->stderr_line[0])
		run->ooms++; /* the program reported it; no recording counted it */
}

static void set_aside(struct neap_supervise *run, const char *path, pid_t pid, void *context)
{
	char target[4200], name[64];
	const char *prefix = context;
	snprintf(name, sizeof name, "start-%u.%s%d", run->retries, prefix, (int)pid);
	if (neap_path_join(target, sizeof target, run->folder, name) || rename(path, target))
		neap_log(run->options.log, NEAP_LOG_WARNING, "A file of this start cannot be kept: renaming %s: %s",
			 path, strerror(errno));
}

void neap_facts_set_aside(struct neap_supervise *run)
{
	static char prefixes[][16] = {"record.", "kept.",      "stacks.", "history.", "oom.",
				      "error.",  "simulated.", "batch.",  "races.",   "places."};
	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
		neap_facts_each_file(run, prefixes[i], set_aside, prefixes[i]);
}
