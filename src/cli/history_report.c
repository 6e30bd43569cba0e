/* cli/history_report.c: see the header. One table of figures serves the single run and the comparison. */
#include "cli/history_report.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/csv.h"
#include "cli/json_print.h"
#include "cli/look.h"
#include "cli/print.h"
#include "cli/run_folder.h"
#include "cli/run_processes.h"
#include "report/cells.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROOM       256
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

enum figure_kind {
	FIGURE_TEXT,
	FIGURE_BYTES,
	FIGURE_TIME,
	FIGURE_COUNT,
	FIGURE_SMALL,
	FIGURE_EXIT,
	FIGURE_LOSS,
	FIGURE_OUTCOME,
	FIGURE_WHEN,
	FIGURE_DRAIN,
	FIGURE_LEAK
};

static const struct figure {
	const char *label;
	enum figure_kind kind;
	size_t offset;
} figures[] = {
#define AT(field) offsetof(struct neap_result, field)
	{"name", FIGURE_TEXT, AT(name)},
	{"command", FIGURE_TEXT, AT(command)},
	{"parameters", FIGURE_TEXT, AT(parameters)},
	{"outcome", FIGURE_OUTCOME, AT(outcome)},
	{"evidence", FIGURE_TEXT, AT(evidence)},
	{"exit status", FIGURE_EXIT, AT(exit_status)},
	{"error", FIGURE_TEXT, AT(error_line)},
	{"folder", FIGURE_TEXT, AT(folder)},
	{"started", FIGURE_WHEN, AT(started_wall_ns)},
	{"ended", FIGURE_WHEN, AT(ended_wall_ns)},
	{"took", FIGURE_TIME, AT(duration_ns)},
	{"device", FIGURE_TEXT, AT(device_name)},
	{"uuid", FIGURE_TEXT, AT(device_uuid)},
	{"backend", FIGURE_TEXT, AT(backend)},
	{"device memory", FIGURE_BYTES, AT(device_total_bytes)},
	{"peak allocated", FIGURE_BYTES, AT(peak_allocated_bytes)},
	{"peak reserved", FIGURE_BYTES, AT(peak_reserved_bytes)},
	{"peak on device", FIGURE_BYTES, AT(peak_device_bytes)},
	{"headroom", FIGURE_BYTES, AT(headroom_bytes)},
	{"waited", FIGURE_TIME, AT(waited_ns)},
	{"drain", FIGURE_DRAIN, AT(drain_ns)},
	{"OOMs", FIGURE_SMALL, AT(ooms)},
	{"retries", FIGURE_SMALL, AT(retries)},
	{"rungs", FIGURE_SMALL, AT(rungs)},
	{"rung", FIGURE_TEXT, AT(rung)},
	{"restarts", FIGURE_SMALL, AT(restarts)},
	{"micro-batch", FIGURE_COUNT, AT(micro_batch)},
	{"accumulation", FIGURE_COUNT, AT(accumulate)},
	{"batch", FIGURE_COUNT, AT(batch)},
	{"steps", FIGURE_COUNT, AT(steps)},
	{"last loss", FIGURE_LOSS, AT(last_loss)},
	{"leak", FIGURE_LEAK, AT(leak_verdict)},
	{"fluctuation", FIGURE_TEXT, AT(fluctuation)},
	{"savings", FIGURE_TEXT, AT(savings)},
	{"cleanup", FIGURE_TEXT, AT(cleanup)},
	{"advice", FIGURE_TEXT, AT(advice)},
	{"stray contexts", FIGURE_TEXT, AT(stray_contexts)},
	{"not attached", FIGURE_TEXT, AT(not_attached)},
	{"contained by", FIGURE_TEXT, AT(containment)},
#undef AT
};
#define FIGURES (sizeof figures / sizeof *figures)

/* The value of a figure in a run, "-" without one; NAN where it is no number. */
static double tell(const struct figure *figure, const struct neap_result *result, char text[ROOM])
{
	const char *base = (const char *)result + figure->offset;
	char size[NEAP_UNITS_ROOM];
	uint64_t number = 0;
	double real = (double)NAN;
	text[0] = '\0';
	switch (figure->kind) {
	case FIGURE_TEXT:
		neap_report_clean(text, ROOM, *(char *const *)base ? *(char *const *)base : "");
		break;
	case FIGURE_BYTES:
		number = *(const uint64_t *)base;
		if (number && number < INT64_MAX)
			snprintf(text, ROOM, "%s", neap_size_format(number, size));
		break;
	case FIGURE_TIME:
		number = *(const uint64_t *)base;
		if (number)
			snprintf(text, ROOM, "%s", neap_duration_format(number, size));
		break;
	case FIGURE_DRAIN:
		number = result->drained ? result->drain_ns : 0;
		if (result->drained && result->device_total_bytes)
			snprintf(text, ROOM, "%s", neap_duration_format(number, size));
		else
			neap_report_clean(text, ROOM, result->drain_note);
		break;
	case FIGURE_COUNT:
		number = *(const uint64_t *)base;
		if (number)
			snprintf(text, ROOM, "%" PRIu64, number);
		break;
	case FIGURE_SMALL:
		number = *(const uint32_t *)base;
		if (number)
			snprintf(text, ROOM, "%" PRIu64, number);
		break;
	case FIGURE_EXIT:
		snprintf(text, ROOM, "%d", *(const int *)base);
		break;
	case FIGURE_LOSS:
		real = *(const double *)base;
		if (isfinite(real))
			snprintf(text, ROOM, "%.6g", real);
		break;
	case FIGURE_OUTCOME:
		snprintf(text, ROOM, "%s", neap_outcome_name(*(const enum neap_outcome *)base));
		break;
	case FIGURE_WHEN:
		history_time(*(const uint64_t *)base, text);
		break;
	case FIGURE_LEAK:
		neap_report_clean(text, ROOM, result->leak_verdict);
		if (!strcmp(text, "leak"))
			snprintf(text, ROOM, "leak, %s a step (confidence %.3f)",
				 neap_size_format_delta((int64_t)result->leak_bytes_per_step, size),
				 result->leak_confidence);
		break;
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
		neap_report_clean(line, sizeof line, plain);
		printf("  %s\n", line);
		text += length + (text[length] == '\n');
	}
}

void history_print_run(const struct neap_history_run *run)
{
	char text[ROOM], time[NEAP_UNITS_ROOM];
	const struct neap_result *result = run->result;
	printf("run              %s\n", NEAP_PRINTABLE(result->run_id));
	if (*run->series) {
		neap_report_clean(text, sizeof text, run->series);
		printf("series           %s\n", text);
	}
	for (size_t i = 0; i < FIGURES; i++) {
		tell(&figures[i], result, text);
		if (strcmp(text, "-"))
			printf("%-15s  %s\n", figures[i].label, text);
	}
	printf("%-15s  %zu\n", "samples", result->sample_count);
	if (result->mark_count > 0)
		puts("\nMarks");
	for (size_t i = 0; i < result->mark_count; i++) {
		neap_report_clean(text, sizeof text, result->marks[i].name);
		printf("  %10s  %s", neap_duration_format(result->marks[i].time_ns, time), text);
		if (result->marks[i].value)
			printf(" %" PRIu64, result->marks[i].value);
		putchar('\n');
	}
	if (run_processes_worth(result)) {
		puts("\nProcesses");
		run_processes_print(result, stdout);
	}
	print_text("Simulated", result->simulated);
	snprintf(text, sizeof text, "The last lines of its %.40s", result->last_lines_of);
	print_text(text, result->last_lines);
	print_text("The last OOM", result->oom_card);
}

void history_print_log(const struct neap_history_run *run)
{
	const struct neap_result *result = run->result;
	bool there = result->folder[0] && run_folder_is(result->folder);
	char title[64];
	if (there && run_folder_print_logs(result->folder, stdout))
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
	size_t columns = neap_report_width(text, strlen(text));
	printf("%s%*s", text, columns < width ? (int)(width - columns) : 0, "");
}

/* One run's cell; numbers with their change from the first run's. */
static void tell_compared(const struct figure *figure, const struct neap_history_run *runs, size_t index,
			  char ret_cell[ROOM + 32])
{
	char text[ROOM], first[ROOM];
	double from = tell(figure, runs[0].result, first), to = tell(figure, runs[index].result, text);
	bool changed =
		strcmp(text, first) && from != 0 && isfinite(from) && isfinite(to) && figure->kind != FIGURE_WHEN;
	snprintf(ret_cell, ROOM + 32, changed ? "%s (%+.1f %%)" : "%s", text, 100 * (to - from) / fabs(from));
}

/* Short texts side by side, long ones below each other. */
static void print_figure(const struct figure *figure, const struct neap_history_run *runs, size_t count)
{
	char first[ROOM + 32], cell[ROOM + 32];
	bool differs = false, any = false, wide = false;
	for (size_t r = 0; r < count; r++) {
		tell_compared(figure, runs, r, cell);
		if (r == 0)
			strcpy(first, cell);
		differs = differs || strcmp(cell, first);
		any = any || strcmp(cell, "-");
		wide = wide || neap_report_width(cell, strlen(cell)) > CELL_WIDTH;
	}
	if (!any)
		return;
	printf("%c %-15s", differs ? '*' : ' ', figure->label);
	for (size_t r = 0; r < count; r++) {
		tell_compared(figure, runs, r, cell);
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
	for (size_t i = 0; i < FIGURES; i++)
		print_figure(&figures[i], runs, count);
}

/* --- the list --- */

enum neap_status history_print_row(size_t index, const struct neap_history_run *run, struct neap_error *err)
{
	struct neap_report_cells *cells = malloc(sizeof *cells);
	char name[ROOM], full[2 * ROOM], when[32];
	if (!cells)
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	neap_report_cells(run->result, cells);
	neap_report_clean(full, ROOM, run->series);
	snprintf(name, sizeof name, "%.100s%s%.120s", full, *full ? "/" : "", cells->text[NEAP_COLUMN_NAME]);
	if (index == 0)
		printf("%-36s  %-19s  %-28s  %-13s  %9s  %9s  %7s  %s\n", "RUN", "ENDED", "NAME", "OUTCOME", "PEAK",
		       "TIME", "STEPS", "RUNG");
	print_padded(run->result->run_id, 36);
	printf("  %-19s  ", history_time(run->result->ended_wall_ns, when));
	print_padded(name, 28);
	printf("  %-13s  %9s  %9s  %7" PRIu64 "  %s\n", cells->text[NEAP_COLUMN_OUTCOME],
	       cells->text[NEAP_COLUMN_PEAK], cells->text[NEAP_COLUMN_TIME], run->result->steps,
	       cells->text[NEAP_COLUMN_RUNG]);
	free(cells);
	return NEAP_OK;
}

/* RFC 4180; bytes and nanoseconds as they are. */
void history_print_csv(size_t index, const struct neap_history_run *run)
{
	const struct neap_result *result = run->result;
	const char *const texts[] = {run->series,         result->run_id,      result->name,
				     result->command,     result->parameters,  neap_outcome_name(result->outcome),
				     result->device_name, result->device_uuid, result->backend,
				     result->rung,        result->leak_verdict};
	const uint64_t numbers[] = {result->started_wall_ns,
				    result->ended_wall_ns,
				    result->duration_ns,
				    result->device_total_bytes,
				    result->peak_allocated_bytes,
				    result->peak_reserved_bytes,
				    result->peak_device_bytes,
				    result->headroom_bytes,
				    result->waited_ns,
				    result->drain_ns,
				    result->steps,
				    result->ooms,
				    result->retries,
				    result->rungs};
	if (index == 0)
		fputs("series,run_id,name,command,parameters,outcome,device_name,device_uuid,backend,rung,leak_"
		      "verdict,"
		      "started_wall_ns,ended_wall_ns,duration_ns,device_total_bytes,peak_allocated_bytes,"
		      "peak_reserved_bytes,peak_device_bytes,headroom_bytes,waited_ns,drain_ns,steps,ooms,retries,"
		      "rungs,"
		      "exit_status,last_loss\r\n",
		      stdout);
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		if (i)
			putchar(',');
		csv_print_text(texts[i] ? texts[i] : "");
	}
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		printf(",%" PRIu64, numbers[i]);
	printf(",%d,", result->exit_status);
	if (isfinite(result->last_loss))
		printf("%.17g", result->last_loss);
	fputs("\r\n", stdout);
}

/* result.json's own object, with the series before it: a long export needs the memory of one run. */
enum neap_status history_print_json(size_t index, const struct neap_history_run *run, struct neap_error *err)
{
	struct neap_result plain = *run->result; /* its strings stay the run's */
	struct neap_buffer text = {0};
	char *quoted = json_line(neap_json_text(run->series));
	plain.leak_bytes_per_step = isfinite(plain.leak_bytes_per_step) ? plain.leak_bytes_per_step : 0;
	plain.leak_confidence = isfinite(plain.leak_confidence) ? plain.leak_confidence : 0;
	enum neap_status status = quoted ? neap_result_format("the run", &plain, &text, err)
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
