/* cli/info_report.c: see info_report.h. */
#include "cli/info_report.h"

#include "base/units.h"
#include "cli/print.h"

#include <stdlib.h>
#include <string.h>

/* A name has at least this many columns, however narrow the terminal is. */
#define NAME_LEAST 20

static const char *size_of(uint64_t bytes, char text[NEAP_UNITS_CAPACITY])
{
	return bytes == NEAP_BYTES_UNKNOWN ? "?" : neap_size_format(bytes, text);
}

static void print_line(FILE *out, const char *name, const char *size, const char *note)
{
	fprintf(out, "  %-16s %10s%s%s\n", name, size, note[0] ? "  " : "", note);
}

/* Explains where bytes may be that the ledger does not explain: libraries of attached processes allocate memory
 * outside their allocators, and the driver may not list a process. */
static void unexplained_note(const struct neap_sample_device *device, char *note, size_t capacity)
{
	int64_t other = neap_sample_other(device);
	char text[NEAP_UNITS_CAPACITY];
	if (other == 0)
		snprintf(note, capacity, "(no process the driver lists holds it)");
	else if (other == device->ledger.unexplained)
		snprintf(note, capacity, "(attached processes hold it beside their allocators: column \"other\")");
	else
		snprintf(note, capacity, "(%s of it in column \"other\"; no process the driver lists holds the rest)",
			 neap_size_format_delta(other, text));
}

static void print_ledger(FILE *out, const struct neap_sample_device *device, bool color)
{
	const struct neap_ledger *ledger = &device->ledger;
	char text[NEAP_UNITS_CAPACITY], note[128];
	print_line(out, "driver reserved", neap_size_format(ledger->driver_reserved, text),
		   device->reading.reserved_known ? "" : "(this driver counts it as used)");
	print_line(out, "contexts", neap_size_format(ledger->contexts, text), "");
	print_line(out, "allocated", neap_size_format(ledger->allocated, text), "");
	print_line(out, "cached", neap_size_format(ledger->cached, text),
		   ledger->cached ? "(neap clear gives it back)" : "");
	print_line(out, "not attached", neap_size_format(ledger->not_attached, text),
		   device->reading.unified ? "(with the host's programs: this GPU uses the host's memory)" : "");
	if (ledger->unexplained != 0) {
		fputs(color ? "\033[33m" : "", out);
		unexplained_note(device, note, sizeof note);
		print_line(out, "unexplained", neap_size_format_delta(ledger->unexplained, text), note);
		fputs(color ? "\033[0m" : "", out);
	}
	print_line(out, "free", neap_size_format(ledger->free, text), "");
	print_line(out, "total", neap_size_format(ledger->total, text), "");
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* The width of the column of users. */
static size_t user_width(const struct neap_sample *sample)
{
	size_t width = strlen("user");
	for (size_t d = 0; d < sample->device_count; d++)
		for (size_t p = 0; p < sample->devices[d].process_count; p++)
			width = larger(width, strlen(sample->devices[d].processes[p].who.user));
	return width;
}

static const char *user_of(const struct neap_sample_process *process)
{
	return process->who.user[0] ? process->who.user : "?";
}

/* The name, shortened to the columns that are left in the line. */
static const char *fitting_name(const struct neap_sample_process *process, const struct info_style *style, int taken,
				char *text, size_t capacity)
{
	size_t columns = 0;
	if (style->columns > 0)
		columns = style->columns > (size_t)taken + NAME_LEAST ? style->columns - (size_t)taken : NAME_LEAST;
	return neap_who_cut(neap_sample_command(process), columns, text, capacity);
}

static void print_process(FILE *out, const struct neap_sample_process *process, int user,
			  const struct info_style *style)
{
	const struct neap_ledger_process *account = &process->account;
	char bytes[NEAP_UNITS_CAPACITY], context[NEAP_UNITS_CAPACITY], allocated[NEAP_UNITS_CAPACITY],
		cached[NEAP_UNITS_CAPACITY], other[NEAP_UNITS_CAPACITY], time[NEAP_WHO_TIME_CAPACITY],
		name[sizeof process->who.command];
	int taken = fprintf(out, "  %8d  %-*s %10s %10s", (int)account->pid, user, user_of(process),
			    neap_who_time_format(process->who.run_ns, time), size_of(account->bytes, bytes));
	if (account->attached)
		taken += fprintf(out, " %10s %10s %10s %10s", neap_size_format(account->context, context),
				 neap_size_format(account->allocated, allocated),
				 neap_size_format(account->cached, cached),
				 neap_size_format_delta(account->other, other));
	else if (process->stray)
		taken += fprintf(out, " a stray context: it has no allocation here, it works on GPU %zu",
				 process->stray_from);
	else
		taken += fprintf(out, " %-43s", "not attached");
	fprintf(out, "  %s\n", fitting_name(process, style, taken + 2, name, sizeof name));
}

static void print_unlisted(FILE *out, const struct neap_sample *sample, const struct neap_attached *attached)
{
	const struct neap_published *published;
	char size[NEAP_UNITS_CAPACITY];
	for (size_t cursor = 0; (published = neap_sample_next_unlisted(sample, attached, &cursor));)
		fprintf(out,
			"Process %d: has %s reserved on a device that NVML does not list, such as a MIG instance: "
			"not counted above\n",
			(int)attached->pid, neap_size_format(neap_sample_reserved(published), size));
}

static const char *utilization_text(const struct neap_sample_device *device, const char *before, char text[32])
{
	text[0] = '\0';
	if (device->reading.utilization_percent >= 0)
		snprintf(text, 32, "%s%d %% busy", before, device->reading.utilization_percent);
	return text;
}

static void print_device(FILE *out, const struct neap_sample *sample, size_t index, int user,
			 const struct info_style *style)
{
	const struct neap_sample_device *device = &sample->devices[index];
	char busy[32];
	fprintf(out, "%sGPU %zu: %s%s%s  %s%s\n", style->color ? "\033[1m" : "", index,
		NEAP_PRINTABLE(device->reading.name), sample->backend == NEAP_BACKEND_SIM ? " (simulated)" : "",
		style->color ? "\033[0m" : "", device->reading.uuid_text, utilization_text(device, "  ", busy));
	print_ledger(out, device, style->color);
	if (!device->reading.processes_known)
		fputs("  the driver gives no list of processes\n", out);
	if (device->process_count > 0)
		fprintf(out, "  %8s  %-*s %10s %10s %10s %10s %10s %10s  %s\n", "PID", user, "user", "run time",
			"in all", "context", "allocated", "cached", "other", "process");
	for (size_t p = 0; p < device->process_count; p++)
		print_process(out, &device->processes[p], user, style);
	if (device->reading.processes_truncated)
		fprintf(out, "  and more: the driver lists over %d processes\n", NEAP_READING_PROCESSES);
}

void info_print_account(FILE *out, const struct neap_sample *sample, const struct info_style *style)
{
	int user = (int)user_width(sample);
	bool first = true;
	for (size_t i = 0; i < sample->device_count; i++) {
		if (sample->devices[i].left_out)
			continue;
		fputs(first ? "" : "\n", out);
		first = false;
		print_device(out, sample, i, user, style);
	}
	for (size_t i = 0; i < sample->attached_count; i++)
		print_unlisted(out, sample, &sample->attached[i]);
	for (size_t i = 0; i < sample->attached_count; i++)
		if (sample->attached[i].note[0])
			fprintf(out, "Process %d: %s\n", (int)sample->attached[i].pid,
				NEAP_PRINTABLE(sample->attached[i].note));
}

/* The first word of a command line, and of an interpreter's the script too: "python train.py". */
static const char *short_name(const struct neap_sample_process *process, char text[64])
{
	const char *command = neap_sample_command(process);
	size_t length = strcspn(command, " ");
	if (strncmp(command, "python", 6) == 0 && command[length] == ' ' && command[length + 1] != '-')
		length += 1 + strcspn(command + length + 1, " ");
	snprintf(text, 64, "%.*s", (int)length, command);
	return text;
}

void info_print_oneline(FILE *out, const struct neap_sample *sample, const struct info_style *style)
{
	char used[NEAP_UNITS_CAPACITY], total[NEAP_UNITS_CAPACITY], free_text[NEAP_UNITS_CAPACITY], busy[32],
		name[64], cut[8192];
	for (size_t i = 0; i < sample->device_count; i++) {
		const struct neap_sample_device *device = &sample->devices[i];
		char *line = NULL;
		size_t length = 0;
		if (device->left_out)
			continue;
		FILE *text = open_memstream(&line, &length);
		if (!text)
			return;
		fprintf(text, "%zu  %s  %s of %s used, %s free%s", i, NEAP_PRINTABLE(device->reading.name),
			neap_size_format(device->ledger.total - device->ledger.free, used),
			neap_size_format(device->ledger.total, total),
			neap_size_format(device->ledger.free, free_text), utilization_text(device, ", ", busy));
		for (size_t p = 0; p < device->process_count; p++)
			fprintf(text, "%s%s/%s(%d) %s", p == 0 ? "  " : ", ", user_of(&device->processes[p]),
				short_name(&device->processes[p], name), (int)device->processes[p].account.pid,
				size_of(device->processes[p].account.bytes, used));
		if (fclose(text) == 0)
			fprintf(out, "%s\n", neap_who_cut(line, style->columns, cut, sizeof cut));
		free(line);
	}
}
