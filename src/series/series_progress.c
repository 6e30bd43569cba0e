/* series/series_progress.c: observes the running attempts from outside: their folders, the newest events of their
 * recordings, the pages of their processes. Only reads; missing data is unknown.
 */
#include "series/series_progress.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/paths.h"
#include "base/units.h"
#include "device/loader.h"
#include "proto/page.h"
#include "series/series_internal.h"
#include "trace/record.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define WIDTH_LEAST 20 /* columns; a shorter line would not be readable */

#define RECORDINGS 64

static uint64_t elapsed_ns(const char *folder)
{
	char path[4096];
	struct stat info;
	if (neap_path_join(path, sizeof path, folder, "supervisor") || stat(path, &info))
		return 0;
	uint64_t begun_ns = (uint64_t)info.st_mtim.tv_sec * NEAP_NS_PER_S + (uint64_t)info.st_mtim.tv_nsec;
	uint64_t now_ns = neap_wall_ns();
	return now_ns > begun_ns ? now_ns - begun_ns : 0;
}

/* Reads the step of the run: of several processes, the highest. */
static void read_step(const char *folder, struct neap_progress_run *run)
{
	DIR *files = opendir(folder);
	size_t seen = 0;
	for (struct dirent *entry; files && seen < RECORDINGS && (entry = readdir(files));) {
		char path[4096];
		uint64_t step;
		double loss;
		if (strncmp(entry->d_name, "record.", 7) || neap_path_join(path, sizeof path, folder, entry->d_name))
			continue;
		seen++;
		if (neap_record_last_step(path, &step, &loss, NULL) || step < run->step)
			continue;
		run->step = step;
		run->loss = loss;
	}
	if (files)
		closedir(files);
}

static uint64_t device_bytes(const struct neap_series *series, const unsigned char uuid[16])
{
	char text[48];
	neap_uuid_format(uuid, text);
	size_t index = neap_series_headroom_find(&series->headroom, text);
	return index < series->headroom.count ? series->headroom.devices[index].bytes : UINT64_MAX;
}

static void add_pages(const struct neap_series *series, const struct neap_attached *pages, size_t count,
		      const char *run_id, struct neap_progress_run *run)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(pages[i].run_id, run_id))
			continue;
		for (size_t k = 0; k < pages[i].device_count && k < NEAP_PAGE_DEVICES; k++) {
			const struct neap_published *device = &pages[i].devices[k];
			int64_t reserved = device->stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].current;
			uint64_t limit_bytes = device_bytes(series, device->device_uuid);
			run->used_bytes += reserved > 0 ? (uint64_t)reserved : 0;
			if (device->limit_bytes < limit_bytes)
				/* The limit is on reserved bytes, without the context. */
				limit_bytes = device->limit_bytes;
			else if (device->context_bytes < limit_bytes)
				run->used_bytes += device->context_bytes;
			if (limit_bytes < run->limit_bytes)
				run->limit_bytes = limit_bytes;
		}
	}
}

/* Returns the remaining time, assuming that the run takes as long as its last one. Reads the history once for each
 * attempt. */
static uint64_t left_ns(struct neap_series *series, struct neap_running *running, uint64_t passed_ns)
{
	const struct neap_experiment *experiment = &series->spec->experiments[running->of];
	char key[NEAP_EXPERIMENT_KEY_CAPACITY];
	if (!running->asked && series->history) {
		neap_experiment_key(experiment, key);
		running->usual_ns = 0;
		neap_history_duration(series->history, series->spec->name, experiment->name, key, &running->usual_ns,
				      NULL);
	}
	running->asked = true;
	return running->usual_ns > passed_ns ? running->usual_ns - passed_ns : UINT64_MAX;
}

void neap_series_progress_show(struct neap_series *series)
{
	struct neap_series_progress progress = {.count = series->spec->count};
	struct neap_attached *pages = NULL;
	char runtime[4096];
	size_t page_count = 0;
	if (neap_path_runtime(runtime, sizeof runtime, NULL) || neap_page_list(runtime, &pages, &page_count, NULL))
		pages = NULL, page_count = 0;
	for (size_t i = 0; i < series->spec->count; i++)
		progress.ended += series->state.experiments[i].ended;
	for (size_t i = 0; i < NEAP_SPEC_PARALLEL; i++) {
		struct neap_running *running = &series->running[i];
		if (running->of == series->spec->count)
			continue;
		struct neap_progress_run *run = &progress.running[progress.running_count++];
		*run = (struct neap_progress_run){.name = series->spec->experiments[running->of].name,
						  .number = running->of + 1,
						  .elapsed_ns = elapsed_ns(running->attempt.folder),
						  .loss = (double)NAN,
						  .limit_bytes = UINT64_MAX};
		read_step(running->attempt.folder, run);
		add_pages(series, pages, page_count, series->state.ends[running->of].run_id, run);
		run->left_ns = left_ns(series, running, run->elapsed_ns);
	}
	free(pages);
	series->options->progress(series->options->line_context, &progress);
}

/* --- the line --- */

/* Formats a time; below a minute, in whole seconds. */
static const char *format_time(uint64_t ns, char text[NEAP_UNITS_CAPACITY])
{
	if (ns >= 60 * NEAP_NS_PER_S)
		return neap_duration_format(ns, text);
	snprintf(text, NEAP_UNITS_CAPACITY, "%llu s", (unsigned long long)(ns / NEAP_NS_PER_S));
	return text;
}

static void format_run(const struct neap_series_progress *progress, const struct neap_progress_run *run,
		       struct neap_buffer *out)
{
	char first[NEAP_UNITS_CAPACITY], second[NEAP_UNITS_CAPACITY];
	neap_buffer_format(out, "[%zu/%zu] %s: %s", run->number, progress->count, run->name,
			   format_time(run->elapsed_ns, first));
	if (run->left_ns != UINT64_MAX)
		neap_buffer_format(out, ", about %s left", format_time(run->left_ns, first));
	if (run->step)
		neap_buffer_format(out, ", step %" PRIu64, run->step);
	if (isfinite(run->loss))
		neap_buffer_format(out, ", loss %.4g", run->loss);
	if (run->used_bytes && run->limit_bytes != UINT64_MAX)
		neap_buffer_format(out, ", %s of %s", neap_size_format(run->used_bytes, first),
				   neap_size_format(run->limit_bytes, second));
	else if (run->used_bytes)
		neap_buffer_format(out, ", %s", neap_size_format(run->used_bytes, first));
}

void neap_series_progress_format(const struct neap_series_progress *progress, size_t width, char *ret_text,
				 size_t capacity)
{
	struct neap_buffer out = {0};
	ret_text[0] = '\0';
	if (width < WIDTH_LEAST || capacity <= width || !progress->running_count)
		return;
	for (size_t i = 0; i < progress->running_count; i++) {
		neap_buffer_text(&out, i ? " | " : "");
		format_run(progress, &progress->running[i], &out);
	}
	if (!out.failed && out.length <= width)
		strcpy(ret_text, neap_buffer_string(&out));
	else if (!out.failed)
		snprintf(ret_text, capacity, "%.*s...", (int)width - 3, neap_buffer_string(&out));
	neap_buffer_fini(&out);
}
