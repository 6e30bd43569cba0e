/* series/series_device.c: handles devices that are missing: mistyped, not there yet, or lost.
 *
 *   named in the file, and not there when the series begins      refused, with a list of the devices
 *   not there when an attempt begins                             retried for wait_limit, if one was ever seen
 *   lost while an attempt ran (NEAP_OUTCOME_NO_DEVICE)           waited for, at most wait_limit, until it can be read
 *
 * Each check opens the driver again: a driver that lost its device does not find it again.
 */
#include "series/series_internal.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define WAIT_NS (600ull * NEAP_NS_PER_S) /* the default of wait_limit */
#define POLL_NS (200 * NEAP_NS_PER_MS)
#define NAP_MS  25

static uint64_t limit_of(const struct neap_experiment *experiment)
{
	uint64_t limit_ns = WAIT_NS;
	if (experiment->wait_limit)
		/* It was checked when the file was read. */
		neap_duration_parse(experiment->wait_limit, &limit_ns, NULL);
	return limit_ns;
}

/* Sleeps, or returns early when the user asks to stop. */
static void nap(const struct neap_series *series, uint64_t pause_ns)
{
	for (; pause_ns > NAP_MS * NEAP_NS_PER_MS && !neap_series_interrupts(series);
	     pause_ns -= NAP_MS * NEAP_NS_PER_MS)
		neap_attempt_sleep(&(struct neap_attempt){.pidfd = -1}, NAP_MS);
}

/* --- mistyped --- */

static bool is_there(struct neap_monitor *monitor, const char *name, struct neap_buffer *ret_present)
{
	struct neap_reading reading;
	uint64_t number = 0;
	bool numbered = !neap_u64_parse(name, &number, NULL), found = false;
	for (size_t i = 0; i < neap_monitor_device_count(monitor); i++) {
		bool readable = !neap_monitor_read(monitor, i, &reading, NULL);
		found = found ||
			(numbered ? number == i : readable && !strncasecmp(reading.uuid_text, name, strlen(name)));
		neap_buffer_format(ret_present, "%s%zu (%s)", i ? ", " : "", i,
				   readable ? reading.uuid_text : "cannot be read");
	}
	return found;
}

enum neap_status neap_series_device_check(const struct neap_spec *spec, struct neap_error *err)
{
	struct neap_monitor *monitor = NULL;
	enum neap_status status = NEAP_OK;
	for (size_t i = 0; i < spec->count && !status; i++) {
		const struct neap_experiment *experiment = &spec->experiments[i];
		struct neap_buffer present = {0};
		if (!experiment->device || experiment->wait_limit)
			continue;
		if (!monitor && neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, NULL))
			return NEAP_OK; /* the supervisor reports it */
		if (!is_there(monitor, experiment->device, &present))
			status = neap_fail(err, NEAP_ENODEVICE,
					   "experiment '%.60s' (line %u): there is no device '%.60s'; there are: "
					   "%.300s. With a wait_limit it is waited for",
					   experiment->name, experiment->line, experiment->device,
					   neap_buffer_string(&present));
		neap_buffer_fini(&present);
	}
	neap_monitor_close(monitor);
	return status;
}

/* --- not there --- */

bool neap_series_device_wait(struct neap_series *series, struct neap_step step, enum neap_status *ret_status,
			     struct neap_error *err)
{
	const struct neap_experiment *experiment = &series->spec->experiments[step.experiment];
	uint64_t limit_ns = limit_of(experiment), now_ns = neap_series_now(series);
	if (!experiment->wait_limit && !series->device_seen)
		return false; /* a machine without a driver: no device can come back */
	if (series->device_of != step.experiment) {
		series->device_of = step.experiment;
		series->device_since_ns = now_ns;
		neap_series_report_line(series, "[%zu/%zu] %s: there is no device: trying again for %s",
					step.experiment + 1, series->spec->count, experiment->name,
					neap_duration_format(limit_ns, (char[NEAP_UNITS_CAPACITY]){0}));
	}
	uint64_t waited_ns = now_ns - series->device_since_ns;
	if (waited_ns >= limit_ns)
		return false;
	nap(series, waited_ns / 8 + POLL_NS);
	if (neap_series_interrupts(series))
		*ret_status = neap_fail(err, NEAP_ECANCELED, "interrupted");
	return true;
}

/* --- lost --- */

static bool is_back(const char *uuid_text)
{
	struct neap_monitor *monitor = NULL;
	struct neap_reading reading;
	bool back = false;
	if (neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, NULL))
		return false;
	for (size_t i = 0; i < neap_monitor_device_count(monitor) && !back; i++)
		back = !neap_monitor_read(monitor, i, &reading, NULL) &&
		       (!*uuid_text || !strcasecmp(reading.uuid_text, uuid_text));
	neap_monitor_close(monitor);
	return back;
}

enum neap_status neap_series_device_return(struct neap_series *series, struct neap_step step, const char *uuid_text,
					   struct neap_error *err)
{
	const struct neap_experiment *experiment = &series->spec->experiments[step.experiment];
	uint64_t begun_ns = neap_series_now(series), limit_ns = limit_of(experiment);
	char limit[NEAP_UNITS_CAPACITY + 16] = "", waited[NEAP_UNITS_CAPACITY];
	const char *uuid = uuid_text ? uuid_text : "";
	if (limit_ns > 0)
		snprintf(limit, sizeof limit, " within %s", neap_duration_format(limit_ns, waited));
	neap_series_report_line(series, "[%zu/%zu] %s: its device was lost: another attempt (%u of %d) %s%s",
				step.experiment + 1, series->spec->count, experiment->name,
				series->state.experiments[step.experiment].deviceless, NEAP_SERIES_LOST_LIMIT - 1,
				limit_ns > 0 ? "when it is back," : "if it is back now", limit);
	series->device_seen = true;
	for (uint64_t waited_ns = 0; !is_back(uuid); waited_ns = neap_series_now(series) - begun_ns) {
		if (neap_series_interrupts(series))
			return neap_fail(err, NEAP_ECANCELED, "interrupted");
		if (waited_ns >= limit_ns)
			return neap_fail(err, NEAP_ENODEVICE,
					 "the device%s%s, which '%.60s' lost, did not come back%s", *uuid ? " " : "",
					 uuid, experiment->name, limit);
		nap(series, waited_ns / 8 + POLL_NS);
	}
	neap_series_report_line(series, "[%zu/%zu] %s: the device is back after %s", step.experiment + 1,
				series->spec->count, experiment->name,
				neap_duration_format(neap_series_now(series) - begun_ns, waited));
	return NEAP_OK;
}
