/* cli/kill_report.c: see kill_report.h. */
#include "cli/kill_report.h"

#include "base/units.h"
#include "cli/print.h"

#include <ctype.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

const char *kill_holds_nothing(const struct neap_kill_work *work)
{
	for (size_t i = 0; i < work->sample.device_count; i++)
		if (work->devices[i].held_bytes || work->devices[i].held_unknown)
			return "";
	if (work->plan.target_count == 0)
		return "";
	return work->plan.target_count == 1
		       ? "it holds no device memory that the driver or neap knows of: ending it gives none back"
		       : "they hold no device memory that the driver or neap knows of: ending them gives none back";
}

const char *kill_held_text(const struct neap_kill_work *work, char *text)
{
	char size[NEAP_UNITS_CAPACITY];
	uint64_t held = neap_kill_held(work);
	bool unknown = false;
	for (size_t i = 0; i < work->sample.device_count; i++)
		unknown |= work->devices[i].held_unknown;
	if (unknown && held == 0)
		snprintf(text, KILL_HELD_CAPACITY, "an unknown amount");
	else
		snprintf(text, KILL_HELD_CAPACITY, "%s%s", unknown ? "at least " : "", neap_size_format(held, size));
	return text;
}

static void print_bytes(const struct neap_kill_work *work, pid_t pid)
{
	char text[NEAP_UNITS_CAPACITY];
	const char *between = "";
	for (size_t i = 0; i < work->sample.device_count; i++) {
		uint64_t bytes = neap_kill_bytes(&work->sample.devices[i], pid);
		if (bytes == 0)
			continue;
		printf("%sGPU %zu: %s", between, i,
		       bytes == NEAP_BYTES_UNKNOWN ? "?" : neap_size_format(bytes, text));
		between = ", ";
	}
	puts(between[0] ? "" : "-");
}

void kill_print_preview(const struct neap_kill_work *work)
{
	const struct neap_kill_plan *plan = &work->plan;
	const char *nothing = kill_holds_nothing(work);
	char text[KILL_HELD_CAPACITY];
	if (plan->target_count > 0) {
		printf("%8s  %-36s  %s\n", "PID", "process", "device memory");
		for (size_t i = 0; i < plan->target_count; i++) {
			const struct neap_process *process = &plan->targets[i].process;
			int indent = plan->targets[i].depth < 8 ? (int)plan->targets[i].depth * 2 : 16;
			struct neap_who who;
			char name[64];
			neap_who_read(process->pid, NULL, &who);
			const char *whole = who.command[0] ? who.command : process->command;
			neap_who_cut(whole, (size_t)(36 - indent), name, sizeof name);
			printf("%8d  %*s%-*s  ", (int)process->pid, indent, "", 36 - indent, name);
			print_bytes(work, process->pid);
			if (strcmp(whole, name) != 0)
				printf("%8s  %*s%s\n", "", indent, "", whole);
		}
		printf("%zu process%s holding %s\n", plan->target_count, plan->target_count == 1 ? "" : "es",
		       kill_held_text(work, text));
		if (nothing[0])
			printf("%c%s.\n", toupper((unsigned char)nothing[0]), nothing + 1);
	}
	for (size_t i = 0; i < plan->refused_count; i++)
		printf("Not ended: process %d (%.40s): %s\n", (int)plan->refused[i].process.pid,
		       plan->refused[i].process.command[0] ? plan->refused[i].process.command : "?",
		       neap_kill_refusal_text(plan->refused[i].why));
}

static bool is_target(const struct neap_kill_work *work, pid_t pid)
{
	for (size_t i = 0; i < work->plan.target_count; i++)
		if (work->plan.targets[i].process.pid == pid)
			return true;
	return false;
}

/* Whether this process may hold the memory that is not back on a device: a target, or a process started since. */
static bool is_holder(const struct neap_kill_work *work, const struct neap_kill_device *device, pid_t pid)
{
	for (size_t i = 0; i < device->before.process_count; i++)
		if (device->before.processes[i].pid == pid)
			return is_target(work, pid);
	return true;
}

static void print_holders(const struct neap_kill_work *work, const struct neap_kill_device *device)
{
	char text[NEAP_UNITS_CAPACITY], name[64];
	uint64_t listed = 0;
	for (size_t i = 0; i < device->after.process_count; i++) {
		const struct neap_reading_process *process = &device->after.processes[i];
		if (!is_holder(work, device, process->pid))
			continue;
		neap_sample_name(process->pid, name);
		printf("  process %d (%s) holds %s%s\n", (int)process->pid, name[0] ? name : "?",
		       process->bytes == NEAP_BYTES_UNKNOWN ? "what the driver does not tell"
							    : neap_size_format(process->bytes, text),
		       is_target(work, process->pid) ? "" : "; it came meanwhile");
		if (is_target(work, process->pid) && process->bytes != NEAP_BYTES_UNKNOWN)
			listed += process->bytes;
	}
	if (device->left_bytes > listed)
		printf("  %s: no process that the driver lists holds it; it may still be freeing it\n",
		       neap_size_format(device->left_bytes - listed, text));
}

static void print_memory(const struct neap_kill_work *work, size_t index)
{
	const struct neap_kill_device *device = &work->devices[index];
	char back[NEAP_UNITS_CAPACITY], held[NEAP_UNITS_CAPACITY], time[NEAP_UNITS_CAPACITY],
		before[NEAP_UNITS_CAPACITY], after[NEAP_UNITS_CAPACITY];
	neap_size_format(neap_kill_returned(device), back);
	neap_size_format(device->held_bytes, held);
	neap_duration_format(work->drain_ns, time);
	neap_size_format(device->before.used_bytes, before);
	neap_size_format(device->after.used_bytes, after);
	if (device->left_bytes > 0) {
		printf("GPU %zu: %s of %s came back in %s; used %s -> %s\n", index, back, held, time, before, after);
		print_holders(work, device);
	} else if (device->held_unknown) {
		printf("GPU %zu: the driver does not report what they held, and no longer lists them; used %s -> "
		       "%s\n",
		       index, before, after);
	} else {
		printf("GPU %zu: %s came back in %s; used %s -> %s\n", index, back, time, before, after);
	}
}

void kill_print_result(const struct neap_kill_work *work)
{
	char time[NEAP_UNITS_CAPACITY];
	for (size_t i = 0; i < work->plan.target_count; i++) {
		const struct neap_process *process = &work->ended[i].process;
		printf("%s process %d (%.40s)", work->ended[i].ended_by ? "Ended" : "NOT ended:", (int)process->pid,
		       process->command);
		if (work->ended[i].ended_by == 0)
			puts(": it lives on after SIGKILL (waiting in the kernel, or not ours to signal)");
		else if (work->plan.targets[i].late)
			printf(" with %s; it came meanwhile\n",
			       work->ended[i].ended_by == SIGKILL ? "SIGKILL" : "SIGTERM");
		else if (work->ended[i].ended_by == SIGKILL)
			printf(" with SIGKILL: it was not gone %s after SIGTERM\n",
			       neap_duration_format(work->grace_ms * 1000000, time));
		else
			puts(" with SIGTERM");
	}
	bool any = false;
	for (size_t i = 0; i < work->sample.device_count; i++) {
		if (work->devices[i].touched)
			print_memory(work, i);
		any = any || work->devices[i].touched;
	}
	if (!any)
		puts("They held no device memory.");
}

int kill_print_json(const struct neap_kill_work *work)
{
	return json_print("kill", neap_kill_json(work), JSON_INDENT(2));
}
