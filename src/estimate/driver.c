/* estimate/driver.c: see driver.h. */
#include "estimate/driver.h"

#include "base/file.h"
#include "base/units.h"
#include "estimate/runs.h"
#include "store/json_rows.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>

#define FILE_BYTES 4096

struct sums {
	uint64_t memory[SIM_DEVICE_LIMIT], contexts[SIM_DEVICE_LIMIT];
};

static void add_line(struct sums *sums, char *line)
{
	uint64_t numbers[3];
	for (size_t i = 0; i < 3; i++) {
		char *word = strsep(&line, " ");
		if (!word || neap_u64_parse(word, &numbers[i], NULL))
			return;
	}
	if (line || numbers[0] >= SIM_DEVICE_LIMIT || numbers[1] > SIM_MEMORY_LIMIT || numbers[2] > 1u << 20)
		return;
	sums->memory[numbers[0]] += numbers[1];
	sums->contexts[numbers[0]] += numbers[2];
}

bool neap_estimate_driver_read(const char *folder, struct neap_estimate_driver *ret_driver)
{
	struct neap_estimate_driver driver = {0};
	struct sums sums = {0};
	DIR *entries = opendir(folder);
	for (struct dirent *entry;
	     entries && driver.processes < NEAP_ESTIMATE_PROCESSES && (entry = readdir(entries));) {
		struct neap_buffer text = {0};
		char path[NEAP_ESTIMATE_CAPACITY], *rest, *line;
		if (strncmp(entry->d_name, "driver.", 7) != 0 ||
		    neap_path_join(path, sizeof path, folder, entry->d_name) ||
		    neap_file_read(path, FILE_BYTES, &text, NULL) || !text.length) {
			neap_buffer_fini(&text);
			continue;
		}
		driver.processes++;
		neap_buffer_text(&text, ""); /* ended by a zero byte */
		rest = text.data;
		while (rest && (line = strsep(&rest, "\n")))
			add_line(&sums, line);
		neap_buffer_fini(&text);
	}
	if (entries)
		closedir(entries);
	for (size_t i = 0; i < SIM_DEVICE_LIMIT; i++)
		if (sums.memory[i] > driver.memory_bytes) {
			driver.memory_bytes = sums.memory[i];
			driver.contexts = sums.contexts[i];
		}
	if (!driver.memory_bytes)
		return false;
	*ret_driver = driver;
	return true;
}

enum neap_estimate_fits neap_estimate_driver_fits(const struct neap_estimate_driver_report *report, size_t gpu,
						  uint64_t *ret_low_bytes, uint64_t *ret_high_bytes)
{
	const struct neap_estimate_gpu *on = &report->plan->gpus[gpu];
	struct neap_estimate_context context = neap_estimate_context(report->plan, gpu, report->run);
	const struct neap_estimate_driver *driver = report->driver;
	uint64_t headroom = on->total_bytes > on->reserved_bytes ? on->total_bytes - on->reserved_bytes : 0;
	*ret_low_bytes = driver->memory_bytes + driver->contexts * context.low_bytes;
	*ret_high_bytes = driver->memory_bytes + driver->contexts * context.high_bytes;
	return *ret_high_bytes <= headroom  ? NEAP_ESTIMATE_YES
	       : *ret_low_bytes <= headroom ? NEAP_ESTIMATE_UNSURE
					    : NEAP_ESTIMATE_NO;
}

static const char *const fits_names[] = {
	[NEAP_ESTIMATE_NO] = "no",
	[NEAP_ESTIMATE_UNSURE] = "probably",
	[NEAP_ESTIMATE_YES] = "yes",
};

void neap_estimate_driver_text(struct neap_buffer *out, const struct neap_estimate_driver_report *report)
{
	const struct neap_estimate_driver *driver = report->driver;
	char size[NEAP_UNITS_CAPACITY], more[NEAP_UNITS_CAPACITY];
	neap_buffer_format(out, "Without PyTorch: what the program took from the simulated driver at most\n");
	neap_buffer_format(out, "  memory      %s\n", neap_size_format(driver->memory_bytes, size));
	neap_buffer_format(out, "  contexts    %" PRIu64 ", of %" PRIu64 " process%s\n\n", driver->contexts,
			   driver->processes, driver->processes == 1 ? "" : "es");
	neap_buffer_format(out, "%-14s %10s  %-22s %s\n", "GPU", "memory", "nvidia-smi", "fits");
	for (size_t i = 0; i < report->plan->count; i++) {
		char total[NEAP_UNITS_CAPACITY], range[2 * NEAP_UNITS_CAPACITY + 8];
		uint64_t low, high;
		enum neap_estimate_fits fits = neap_estimate_driver_fits(report, i, &low, &high);
		snprintf(range, sizeof range, "%s to %s", neap_size_format(low, size), neap_size_format(high, more));
		neap_buffer_format(out, "%-14s %10s  %-22s %s\n", report->plan->gpus[i].name,
				   neap_size_format(report->plan->gpus[i].total_bytes, total), range,
				   fits_names[fits]);
	}
	neap_buffer_text(out, "\nA program that takes a share of the free memory takes that of the simulated GPU.\n");
}

json_t *neap_estimate_driver_json(const struct neap_estimate_driver_report *report)
{
	json_t *gpus = json_array();
	for (size_t i = 0; i < report->plan->count; i++) {
		uint64_t low, high;
		enum neap_estimate_fits fits = neap_estimate_driver_fits(report, i, &low, &high);
		neap_json_add(gpus,
			      JSON(TEXT("name", report->plan->gpus[i].name),
				   NUMBER("total_bytes", report->plan->gpus[i].total_bytes), NUMBER("low_bytes", low),
				   NUMBER("high_bytes", high), TEXT("fits", fits_names[fits])));
	}
	return JSON(NUMBER("schema", 1), TEXT("backend", "driver"), TEXT("command", report->command),
		    NUMBER("memory_peak", report->driver->memory_bytes), NUMBER("contexts", report->driver->contexts),
		    NUMBER("processes", report->driver->processes), VALUE("gpus", gpus));
}
