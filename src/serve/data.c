/* serve/data.c: see data.h. */
#include "serve/data.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "machine/sample.h"
#include "report/embedded.h"
#include "serve/metrics.h"
#include "store/json_rows.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The page's beginning; src/report/live.html follows. */
static const char page_head[] =
	"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
	"<meta name=\"viewport\" content=\"width=device-width\"><title>neap: GPU memory</title>\n"
	"<link rel=\"icon\" href=\"data:,\"><link rel=\"stylesheet\" href=\"/live.css\">\n"
	"<script src=\"/live.js\" defer></script></head><body>\n";

enum text { METRICS, API, HISTORY, TEXTS };

struct point {
	uint64_t wall_ms; /* 0: the device could not be read */
	struct neap_ledger ledger;
	int utilization_percent;
};

struct neap_serve_data {
	struct neap_monitor *monitor;
	const char *folder;
	uint64_t every_ns;
	pthread_mutex_t lock; /* guards all fields below; a leaf */
	struct neap_sample sample;
	bool up;
	char problem[256];         /* why the last sample failed; "": it succeeded */
	uint64_t poll_ns, wall_ns; /* how long the sample took, and when it ended */
	struct point *points;      /* NEAP_SERVE_POINTS for each device */
	size_t device_count, newest, point_count;
	struct neap_buffer texts[TEXTS]; /* empty: not yet made from the newest sample */
};

enum neap_status neap_serve_data_create(struct neap_monitor *monitor, const char *runtime_folder, uint64_t every_ns,
					struct neap_serve_data **ret_data, struct neap_error *err)
{
	struct neap_serve_data *data = calloc(1, sizeof *data);
	size_t count = neap_monitor_device_count(monitor);
	if (data)
		data->points = calloc((count + 1) * NEAP_SERVE_POINTS, sizeof *data->points);
	if (!data || !data->points) {
		free(data);
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	}
	data->monitor = monitor;
	data->folder = runtime_folder;
	data->every_ns = every_ns;
	data->device_count = count;
	pthread_mutex_init(&data->lock, NULL);
	*ret_data = data;
	return NEAP_OK;
}

void neap_serve_data_destroy(struct neap_serve_data *data)
{
	if (!data)
		return;
	neap_sample_fini(&data->sample);
	for (size_t i = 0; i < TEXTS; i++)
		neap_buffer_fini(&data->texts[i]);
	pthread_mutex_destroy(&data->lock);
	free(data->points);
	free(data);
}

/* Adds a point for each device. A device that cannot be read any more gets an empty one, so that its old points age
 * like all others. */
static void keep_points(struct neap_serve_data *data)
{
	if (data->point_count > 0)
		data->newest = (data->newest + 1) % NEAP_SERVE_POINTS;
	if (data->point_count < NEAP_SERVE_POINTS)
		data->point_count++;
	for (size_t d = 0; d < data->device_count; d++) {
		struct point point = {0};
		if (d < data->sample.device_count)
			point = (struct point){data->wall_ns / NEAP_NS_PER_MS, data->sample.devices[d].ledger,
					       data->sample.devices[d].reading.utilization_percent};
		data->points[d * NEAP_SERVE_POINTS + data->newest] = point;
	}
}

enum neap_status neap_serve_data_sample(struct neap_serve_data *data, struct neap_error *err)
{
	struct neap_sample sample = {0};
	uint64_t start_ns = neap_clock_now(neap_clock_system());
	enum neap_status status = neap_sample_take(data->monitor, data->folder, &sample, err);
	if (!status)
		neap_sample_who(&sample);
	uint64_t poll_ns = neap_clock_now(neap_clock_system()) - start_ns;
	pthread_mutex_lock(&data->lock);
	neap_sample_fini(&data->sample);
	data->sample = status ? (struct neap_sample){0} : sample;
	data->up = !status;
	data->poll_ns = poll_ns;
	data->wall_ns = neap_wall_ns();
	snprintf(data->problem, sizeof data->problem, "%s", status && err ? err->message : "");
	keep_points(data);
	for (size_t i = 0; i < TEXTS; i++)
		neap_buffer_clear(&data->texts[i]);
	pthread_mutex_unlock(&data->lock);
	if (status)
		neap_sample_fini(&sample);
	return status;
}

/* -- texts, made with the lock held ------------------------------------------------------------------------------ */

/* Whether no living process here has this PID of the driver's list. */
static bool is_gone(pid_t pid)
{
	struct neap_process process;
	return neap_process_read(pid, &process, NULL) != NEAP_OK || process.state == 'Z' || process.state == 'X';
}

static const char *run_of(const struct neap_sample *sample, pid_t pid)
{
	for (size_t i = 0; i < sample->attached_count; i++)
		if (sample->attached[i].pid == pid)
			return sample->attached[i].run_id;
	return "";
}

static size_t add_processes(const struct neap_sample *sample, size_t device, struct neap_metrics_device *to,
			    struct neap_metrics_process *processes)
{
	const struct neap_sample_device *from = &sample->devices[device];
	for (size_t p = 0; p < from->process_count; p++) {
		const struct neap_sample_process *process = &from->processes[p];
		processes[p] = (struct neap_metrics_process){.device = device,
							     .user = process->who.user,
							     .name = process->who.name,
							     .run = run_of(sample, process->account.pid),
							     .run_ns = process->who.run_ns,
							     .account = process->account};
		if (!process->account.attached && process->account.bytes != NEAP_BYTES_UNKNOWN &&
		    is_gone(process->account.pid))
			to->gone_bytes += process->account.bytes;
	}
	return from->process_count;
}

static void make_metrics(const struct neap_serve_data *data, struct neap_buffer *out)
{
	const struct neap_sample *sample = &data->sample;
	struct neap_metrics metrics = {.up = data->up, .version = NEAP_VERSION, .poll_ns = data->poll_ns};
	size_t capacity = 1;
	for (size_t d = 0; d < sample->device_count; d++)
		capacity += sample->devices[d].process_count;
	struct neap_metrics_device *devices = calloc(sample->device_count + 1, sizeof *devices);
	struct neap_metrics_process *processes = calloc(capacity, sizeof *processes);
	out->failed = !devices || !processes;
	for (size_t d = 0; !out->failed && d < sample->device_count; d++) {
		const struct neap_reading *reading = &sample->devices[d].reading;
		devices[d] = (struct neap_metrics_device){.uuid = reading->uuid_text,
							  .name = reading->name,
							  .ledger = sample->devices[d].ledger,
							  .utilization_percent = reading->utilization_percent};
		metrics.process_count += add_processes(sample, d, &devices[d], processes + metrics.process_count);
	}
	metrics.devices = devices;
	metrics.device_count = out->failed ? 0 : sample->device_count;
	metrics.processes = processes;
	neap_metrics_write(out, &metrics);
	free(devices);
	free(processes);
}

static void make_api(const struct neap_serve_data *data, struct neap_buffer *out)
{
	uint64_t before = neap_json_failures();
	json_t *root = data->up ? neap_sample_json(&data->sample, data->wall_ns)
				: JSON(INTEGER("schema", 1), TEXT("error", data->problem));
	char *text = neap_json_dump(root, JSON_COMPACT);
	json_decref(root);
	out->failed = !text || neap_json_failures() != before;
	if (!out->failed)
		neap_buffer_text(out, text);
	free(text);
}

/* Writes a device's points, oldest first: [ms since 1970, the ledger's members in their order, percent busy]. */
static void make_points(const struct neap_serve_data *data, size_t device, struct neap_buffer *out)
{
	const char *between = "";
	for (size_t age = data->point_count; age-- > 0;) {
		size_t at = (data->newest + NEAP_SERVE_POINTS - age) % NEAP_SERVE_POINTS;
		const struct point *point = &data->points[device * NEAP_SERVE_POINTS + at];
		const struct neap_ledger *l = &point->ledger;
		if (!point->wall_ms)
			continue;
		neap_buffer_format(out,
				   "%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
				   ",%" PRId64 ",%" PRIu64 ",",
				   between, point->wall_ms, l->driver_reserved, l->contexts, l->allocated, l->cached,
				   l->not_attached, l->unexplained, l->free);
		if (point->utilization_percent >= 0)
			neap_buffer_format(out, "%d]", point->utilization_percent);
		else
			neap_buffer_text(out, "null]");
		between = ",";
	}
}

static void make_history(const struct neap_serve_data *data, struct neap_buffer *out)
{
	neap_buffer_format(out,
			   "{\"schema\":1,\"every_ms\":%" PRIu64 ",\"points_most\":%d,\"columns\":[\"time_ms\","
			   "\"driver_reserved\",\"contexts\",\"allocated\",\"cached\",\"not_attached\","
			   "\"unexplained\",\"free\",\"utilization_percent\"],\"devices\":[",
			   (uint64_t)(data->every_ns / NEAP_NS_PER_MS), NEAP_SERVE_POINTS);
	for (size_t d = 0; d < data->device_count; d++) {
		neap_buffer_format(out, "%s{\"index\":%zu,\"points\":[", d ? "," : "", d);
		make_points(data, d, out);
		neap_buffer_text(out, "]}");
	}
	neap_buffer_text(out, "]}\n");
}

static const struct page {
	const char *path, *type, *head, *fixed; /* head: before `fixed` */
	enum text text;                         /* without `fixed` */
	void (*make)(const struct neap_serve_data *data, struct neap_buffer *out);
} pages[] = {
	{"/", "text/html; charset=utf-8", page_head, neap_live_html, TEXTS, NULL},
	{"/live.css", "text/css; charset=utf-8", "", neap_live_css, TEXTS, NULL},
	{"/live.js", "text/javascript; charset=utf-8", "", neap_live_js, TEXTS, NULL},
	{"/metrics", "text/plain; version=0.0.4; charset=utf-8", "", NULL, METRICS, make_metrics},
	{"/api", "application/json", "", NULL, API, make_api},
	{"/api/history", "application/json", "", NULL, HISTORY, make_history},
};

static void reply_text(struct neap_serve_reply *reply, const char *head, const char *text)
{
	size_t before = strlen(head), length = strlen(text);
	reply->text = malloc(before + length + 1);
	reply->length = before + length;
	if (!reply->text)
		return;
	memcpy(reply->text, head, before);
	memcpy(reply->text + before, text, length + 1);
}

void neap_serve_data_answer(void *context, const char *path, struct neap_serve_reply *ret_reply)
{
	static const char nothing[] = "nothing here; there are /, /metrics, /api and /api/history\n";
	struct neap_serve_data *data = context;
	const struct page *page = NULL;
	for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
		if (strcmp(pages[i].path, path) == 0)
			page = &pages[i];
	*ret_reply = (struct neap_serve_reply){.code = page ? 200 : 404, .type = page ? page->type : "text/plain"};
	if (!page || page->fixed) {
		reply_text(ret_reply, page ? page->head : "", page ? page->fixed : nothing);
		return;
	}
	pthread_mutex_lock(&data->lock);
	struct neap_buffer *text = &data->texts[page->text];
	if (text->length == 0 || text->failed) {
		neap_buffer_clear(text);
		page->make(data, text);
	}
	if (!text->failed)
		reply_text(ret_reply, "", neap_buffer_string(text));
	if (page->text == API && !data->up)
		ret_reply->code = 503;
	pthread_mutex_unlock(&data->lock);
}
