/* device/ledger.c: adds up the ledger. Bytes without a known owner go to `unexplained`, so that the lines always add
 * up to the device's total and nothing is hidden. */
#include "device/ledger.h"

/* Returns the row of `pid`; creates it if it is missing. A process that is listed twice (a partitioned device) or
 * publishes twice (two allocators) has one row. */
static struct neap_ledger_process *row_of(struct neap_ledger_process *rows, size_t *count, pid_t pid)
{
	for (size_t i = 0; i < *count; i++)
		if (rows[i].pid == pid)
			return &rows[i];
	rows[*count] = (struct neap_ledger_process){.pid = pid, .bytes = NEAP_BYTES_UNKNOWN};
	return &rows[(*count)++];
}

static uint64_t not_negative(int64_t value) { return value > 0 ? (uint64_t)value : 0; }

static void add_attached(struct neap_ledger_process *row, const struct neap_published *published)
{
	uint64_t reserved = not_negative(published->stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].current);
	uint64_t allocated =
		not_negative(published->stats.metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL].current);

	row->attached = true;
	/* One context per process and device, for any number of allocators. */
	if (published->context_bytes > row->context)
		row->context = published->context_bytes;
	row->allocated += allocated;
	row->cached += reserved > allocated ? reserved - allocated : 0;
}

void neap_ledger_compute(const struct neap_reading *reading, const struct neap_ledger_attached *attached,
			 size_t attached_count, struct neap_ledger *ret_ledger,
			 struct neap_ledger_process *ret_processes, size_t *ret_process_count)
{
	struct neap_ledger ledger = {
		.driver_reserved = reading->reserved_bytes,
		.free = reading->free_bytes,
		.total = reading->total_bytes,
	};
	size_t count = 0;

	for (size_t i = 0; i < reading->process_count; i++) {
		struct neap_ledger_process *row = row_of(ret_processes, &count, reading->processes[i].pid);
		uint64_t bytes = reading->processes[i].bytes;
		if (bytes != NEAP_BYTES_UNKNOWN)
			row->bytes = row->bytes == NEAP_BYTES_UNKNOWN ? bytes : row->bytes + bytes;
	}
	for (size_t i = 0; i < attached_count; i++)
		add_attached(row_of(ret_processes, &count, attached[i].pid), &attached[i].published);

	for (size_t i = 0; i < count; i++) {
		struct neap_ledger_process *row = &ret_processes[i];
		if (row->attached && row->bytes != NEAP_BYTES_UNKNOWN)
			row->other = (int64_t)(row->bytes - row->context - row->allocated - row->cached);
		if (!row->attached && row->bytes != NEAP_BYTES_UNKNOWN)
			ledger.not_attached += row->bytes;
		ledger.contexts += row->context;
		ledger.allocated += row->allocated;
		ledger.cached += row->cached;
	}
	ledger.unexplained = (int64_t)(ledger.total - ledger.driver_reserved - ledger.contexts - ledger.allocated -
				       ledger.cached - ledger.not_attached - ledger.free);
	if (reading->unified && ledger.unexplained > 0) {
		ledger.not_attached += (uint64_t)ledger.unexplained;
		ledger.unexplained = 0;
	}
	*ret_ledger = ledger;
	*ret_process_count = count;
}

bool neap_ledger_context_sized(uint64_t bytes, uint64_t context_elsewhere_bytes)
{
	return bytes == NEAP_BYTES_UNKNOWN || !context_elsewhere_bytes || bytes / 2 <= context_elsewhere_bytes;
}
