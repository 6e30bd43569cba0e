/* cli/history_report.c: see the header. One table of figures serves single runs and comparisons. */
#include "cli/history_report.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/print.h"
#include "report/cells.h"
#include "report/processes.h"
#include "run/folder.h"
#include "run/folder_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CAPACITY   256
#define CELL_WIDTH 36

const char *history_time(uint64_t wall_ns, char text[32])
{
	time_t seconds = (time_t)(wall_ns / NEAP_NS_PER_S);
	struct tm local;
	if (!wall_ns || !localtime_r(&seconds, &local) || strftime(text, 32, "%Y-%m-%d %H:%M:%S", &local) == 0)
		strcpy(text, "-");
	return text;
}

/* --- figures --- */

/* A whole number; "" for 0. */
static void report_count(uint64_t number, char text[CAPACITY])
{
	if (number)
		snprintf(text, CAPACITY, "%" PRIu64, number);
}

/* The value of a field in a run, "-" without one; NAN if it is not a number. */
static double report(size_t at, const struct neap_result *result, char text[CAPACITY])
{
	const struct neap_result_field *field = &neap_result_fields[at];
	const void *place = neap_result_at(result, field);
	char size[NEAP_UNITS_CAPACITY];
	uint64_t number = 0;
	double real = (double)NAN;
	text[0] = '\0';
	switch (field->kind) {
	case NEAP_RESULT_TEXT:
		neap_printable(text, CAPACITY, *(char *const *)place ? *(char *const *)place : "");
		break;
	case NEAP_RESULT_BYTES:
		number = *(const uint64_t *)place;
		if (number && number < INT64_MAX)
			snprintf(text, CAPACITY, "%s", neap_size_format(number, size));
		break;
	case NEAP_RESULT_NS:
		number = *(const uint64_t *)place;
		if (number)
			snprintf(text, CAPACITY, "%s", neap_duration_format(number, size));
		break;
	case NEAP_RESULT_COUNT:
		report_count(number = *(const uint64_t *)place, text);
		break;
	case NEAP_RESULT_SMALL:
		report_count(number = *(const uint32_t *)place, text);
		break;
	case NEAP_RESULT_STATUS:
		snprintf(text, CAPACITY, "%d", *(const int *)place);
		break;
	case NEAP_RESULT_LOSS:
	case NEAP_RESULT_NUMBER:
	case NEAP_RESULT_SHARE:
		real = *(const double *)place;
		if (isfinite(real))
			snprintf(text, CAPACITY, "%.6g", real);
		break;
	case NEAP_RESULT_BOOL:
		strcpy(text, *(const bool *)place ? "yes" : "no");
		break;
	case NEAP_RESULT_OUTCOME:
		snprintf(text, CAPACITY, "%s", neap_outcome_name(*(const enum neap_outcome *)place));
		break;
	case NEAP_RESULT_WALL:
		history_time(*(const uint64_t *)place, text);
		break;
	}
	if (at == NEAP_RESULT_FIELD_drain_ns && !(result->drained && result->device_total_bytes)) {
		number = result->drained ? number : 0;
		neap_printable(text, CAPACITY, result->drain_note);
	} else if (at == NEAP_RESULT_FIELD_drain_ns) {
		snprintf(text, CAPACITY, "%s", neap_duration_format(number, size));
	} else if (at == NEAP_RESULT_FIELD_leak_verdict && !strcmp(text, "leak")) {
		snprintf(text, CAPACITY, "leak, %s a step (confidence %.3f)",
			 neap_size_format_delta((int64_t)result->leak_bytes_per_step, size), result->leak_confidence);
	}
	if (!text[0])
		strcpy(text, "-");
	return number ? (double)number : real;
}

/* --- one run, several runs --- */

static void print_text(const char *title, const char *text)
{
	char line[1024], plain[1024];
	if (!*text)
		return;
	printf("\n%s\n", title);
	while (*text) {
		size_t length = strcspn(text, "\n");
		snprintf(plain, sizeof plain, "%.*s", (int)(length < sizeof plain ? length : sizeof plain), text);
		neap_printable(line, sizeof line, plain);
		printf("  %s\n", line);
		text += length + (text[length] == '\n');
	}
}

void history_print_run(const struct neap_history_run *run)
{
	char text[CAPACITY], time[NEAP_UNITS_CAPACITY];
	const struct neap_result *result = run->result;
	printf("run              %s\n", NEAP_PRINTABLE(result->run_id));
	if (*run->series) {
		neap_printable(text, sizeof text, run->series);
		printf("series           %s\n", text);
	}
	for (size_t i = 0; i < NEAP_RESULT_FIELDS; i++) {
		report(i, result, text);
		if (*neap_result_fields[i].label && strcmp(text, "-"))
			printf("%-15s  %s\n", neap_result_fields[i].label, text);
	}
	printf("%-15s  %zu\n", "samples", result->sample_count);
	if (result->mark_count > 0)
		puts("\nMarks");
	for (size_t i = 0; i < result->mark_count; i++) {
		neap_printable(text, sizeof text, result->marks[i].name);
		printf("  %10s  %s", neap_duration_format(result->marks[i].time_ns, time), text);
		if (result->marks[i].value)
			printf(" %" PRIu64, result->marks[i].value);
		putchar('\n');
	}
	if (neap_report_processes_known(result)) {
		struct neap_buffer lines = {0};
		neap_report_processes(&lines, result);
		printf("\nProcesses\n%s", neap_buffer_string(&lines));
		neap_buffer_fini(&lines);
	}
	print_text("Simulated", result->simulated);
	snprintf(text, sizeof text, "The last lines of its %.40s", result->last_lines_of);
	print_text(text, result->last_lines);
	print_text("The last OOM", result->oom_card);
}

void history_print_log(const struct neap_history_run *run)
{
	const struct neap_result *result = run->result;
	bool there = result->folder[0] && neap_run_folder_is(result->folder);
	char title[64];
	struct neap_buffer logs = {0};
	bool found = there && neap_run_folder_logs(&logs, result->folder);
	if (found)
		print_safe_lines(stdout, neap_buffer_string(&logs));
	neap_buffer_fini(&logs);
	if (found)
		return;
	if (result->folder[0])
		printf(there ? "No log in %s: the run was without --log.\n" : "%s is gone.\n",
		       NEAP_PRINTABLE(result->folder));
	else
		puts("The folder of this run is not known: an earlier neap wrote its result.");
	snprintf(title, sizeof title, "The last lines of its %.40s", result->last_lines_of);
	print_text(title, result->last_lines);
}

static void print_padded(const char *text, size_t width)
{
	fputs(text, stdout);
	for (size_t columns = neap_report_width(text, strlen(text)); columns < width; columns++)
		putchar(' ');
}

/* One run's cell; numbers with their change from the first run's. */
static void report_compared(size_t field, const struct neap_history_run *runs, size_t index,
			    char ret_cell[CAPACITY + 32])
{
	char text[CAPACITY], first[CAPACITY];
	double from = report(field, runs[0].result, first), to = report(field, runs[index].result, text);
	bool changed = strcmp(text, first) && from != 0 && isfinite(from) && isfinite(to);
	snprintf(ret_cell, CAPACITY + 32, changed ? "%s (%+.1f %%)" : "%s", text, 100 * (to - from) / fabs(from));
}

/* Prints short texts side by side, long ones one below the other. */
static void print_figure(size_t field, const struct neap_history_run *runs, size_t count)
{
	char first[CAPACITY + 32], cell[CAPACITY + 32];
	bool differs = false, any = false, wide = false;
	for (size_t r = 0; r < count; r++) {
		report_compared(field, runs, r, cell);
		if (r == 0)
			strcpy(first, cell);
		differs = differs || strcmp(cell, first);
		any = any || strcmp(cell, "-");
		wide = wide || neap_report_width(cell, strlen(cell)) > CELL_WIDTH;
	}
	if (!any)
		return;
	printf("%c %-15s", differs ? '*' : ' ', neap_result_fields[field].label);
	for (size_t r = 0; r < count; r++) {
		report_compared(field, runs, r, cell);
		if (wide) {
			printf("%s  %s\n", r ? "                 " : "", cell);
			if (!differs)
				return;
			continue;
		}
		printf("  ");
		print_padded(cell, r + 1 < count ? CELL_WIDTH : 0);
	}
	if (!wide)
		putchar('\n');
}

void history_print_compared(const struct neap_history_run *runs, size_t count)
{
	printf("  %-15s", "run");
	for (size_t r = 0; r < count; r++) {
		printf("  ");
		print_padded(runs[r].result->run_id, r + 1 < count ? CELL_WIDTH : 0);
	}
	putchar('\n');
	for (size_t i = 0; i < NEAP_RESULT_FIELDS; i++)
		if (*neap_result_fields[i].label)
			print_figure(i, runs, count);
}

/* --- the list --- */

void history_print_row(size_t index, const struct neap_history_run *run)
{
	struct neap_report_cells cells;
	char name[CAPACITY], full[2 * CAPACITY], when[32];
	neap_report_cells(run->result, &cells);
	neap_printable(full, CAPACITY, run->series);
	snprintf(name, sizeof name, "%.100s%s%.120s", full, *full ? "/" : "", cells.text[NEAP_COLUMN_NAME]);
	if (index == 0)
		printf("%-36s  %-19s  %-28s  %-13s  %9s  %9s  %7s  %s\n", "RUN", "ENDED", "NAME", "OUTCOME", "PEAK",
		       "TIME", "STEPS", "RUNG");
	print_padded(run->result->run_id, 36);
	fputs("  ", stdout);
	print_padded(history_time(run->result->ended_wall_ns, when), 19);
	fputs("  ", stdout);
	print_padded(name, 28);
	printf("  %-13s  %9s  %9s  %7" PRIu64 "  %s\n", cells.text[NEAP_COLUMN_OUTCOME], cells.text[NEAP_COLUMN_PEAK],
	       cells.text[NEAP_COLUMN_TIME], run->result->steps, cells.text[NEAP_COLUMN_RUNG]);
}

/* Writes a row by RFC 4180. Bytes and nanoseconds have no unit. */
void history_print_csv(size_t index, const struct neap_history_run *run)
{
#define AT(name) NEAP_RESULT_FIELD_##name
	static const size_t columns[] = {AT(run_id),
					 AT(name),
					 AT(command),
					 AT(parameters),
					 AT(outcome),
					 AT(device_name),
					 AT(device_uuid),
					 AT(backend),
					 AT(rung),
					 AT(leak_verdict),
					 AT(started_wall_ns),
					 AT(ended_wall_ns),
					 AT(duration_ns),
					 AT(device_total_bytes),
					 AT(peak_allocated_bytes),
					 AT(peak_reserved_bytes),
					 AT(peak_device_bytes),
					 AT(headroom_bytes),
					 AT(waited_ns),
					 AT(drain_ns),
					 AT(steps),
					 AT(ooms),
					 AT(retries),
					 AT(rungs),
					 AT(exit_status),
					 AT(last_loss)};
#undef AT
	const size_t count = sizeof columns / sizeof *columns;
	for (size_t i = 0; index == 0 && i < count; i++)
		printf("%s%s%s", i ? "," : "series,", neap_result_fields[columns[i]].key,
		       i + 1 < count ? "" : "\r\n");
	print_csv_text(run->series);
	for (size_t i = 0; i < count; i++) {
		const struct neap_result_field *field = &neap_result_fields[columns[i]];
		const void *place = neap_result_at(run->result, field);
		putchar(',');
		if (field->kind == NEAP_RESULT_TEXT)
			print_csv_text(*(char *const *)place);
		else if (field->kind == NEAP_RESULT_OUTCOME)
			print_csv_text(neap_outcome_name(*(const enum neap_outcome *)place));
		else if (field->kind == NEAP_RESULT_STATUS)
			printf("%d", *(const int *)place);
		else if (field->kind == NEAP_RESULT_SMALL)
			printf("%" PRIu32, *(const uint32_t *)place);
		else if (field->kind != NEAP_RESULT_LOSS)
			printf("%" PRIu64, *(const uint64_t *)place);
		else if (isfinite(*(const double *)place))
			printf("%.17g", *(const double *)place);
	}
	fputs("\r\n", stdout);
}

/* Writes result.json's own object, with the series before it. A long export needs the memory of only one run. */
enum neap_status history_print_json(size_t index, const struct neap_history_run *run, struct neap_error *err)
{
	struct neap_buffer text = {0};
	char *quoted = json_line(neap_json_text(run->series));
	enum neap_status status = quoted ? neap_result_format("the run", run->result, &text, err)
					 : neap_fail(err, NEAP_ENOMEM, "out of memory");
	if (!status) {
		printf("%s{\n \"series\": ", index ? ", " : "{\"schema\": 1, \"runs\": [");
		print_safe_json(stdout, quoted);
		putchar(',');
		print_safe_json(stdout, neap_buffer_string(&text) + 1);
	}
	free(quoted);
	neap_buffer_fini(&text);
	return status;
}

void history_end_json(size_t count) { puts(count ? "]}" : "{\"schema\": 1, \"runs\": []}"); }
