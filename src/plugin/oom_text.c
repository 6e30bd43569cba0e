/* plugin/oom_text.c: writes the text of torch.OutOfMemoryError for neap's memory, in PyTorch's form, so that programs
 * that parse PyTorch's errors can parse these. */
#include "neap/plugin.h"

#include <stdarg.h>
#include <stdio.h>

struct sums {
	uint64_t largest; /* free block */
	uint64_t pools;   /* reserved in private pools */
};

static void add_block(void *context, const struct neap_block_info *block)
{
	struct sums *sums = context;
	if (block->state == NEAP_BLOCK_CACHED && block->bytes > sums->largest)
		sums->largest = block->bytes;
	if (block->state != NEAP_BLOCK_UNMAPPED && (block->pool_high || block->pool_low))
		sums->pools += block->bytes;
}

struct text {
	char *to;
	size_t capacity, length;
};

NEAP_PRINTF(2, 3) static void add(struct text *text, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(text->to + text->length, text->capacity - text->length, format, arguments);
	va_end(arguments);
	size_t left = text->capacity - text->length - 1;
	text->length += length < 0 ? 0 : (size_t)length < left ? (size_t)length : left;
}

/* As PyTorch writes a size. */
static void add_size(struct text *text, const char *before, uint64_t bytes, const char *after)
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
	double value = (double)bytes;
	int unit = 0;
	for (; value > 1024 && unit < 3; unit++)
		value /= 1024;
	add(text, unit ? "%s%.2f %s%s" : "%s%.0f %s%s", before, value, units[unit], after);
}

static uint64_t held(const struct neap_stats *stats, enum neap_metric metric)
{
	return (uint64_t)stats->metric[metric][NEAP_CLASS_ALL].current;
}

void neap_plugin_oom_text(struct neap_alloc *alloc, size_t bytes, char *ret_text, size_t capacity)
{
	struct neap_device *device = neap_alloc_device(alloc);
	const struct neap_device_info *info = neap_device_info(device);
	uint64_t free_bytes = 0, total = 0, context = neap_device_context_bytes(device);
	double fraction = neap_get_fraction(alloc);
	struct text text = {.to = ret_text, .capacity = capacity};
	struct sums sums = {0};
	struct neap_stats stats;
	struct neap_asked asked;
	neap_get_stats(alloc, &stats);
	neap_last_asked(alloc, &asked);
	neap_each_block(alloc, add_block, &sums);
	uint64_t reserved = held(&stats, NEAP_METRIC_RESERVED_BYTES);
	uint64_t allocated = held(&stats, NEAP_METRIC_ALLOCATED_BYTES);
	bool known = neap_device_memory(device, &free_bytes, &total, NULL) == NEAP_OK;

	add_size(&text, "CUDA out of memory. Tried to allocate ", bytes, ". ");
	add(&text, "GPU %d has a total capacity of ", info->ordinal);
	add_size(&text, "", known ? total : info->total_bytes, known ? " of which " : ". ");
	if (known)
		add_size(&text, "", free_bytes, " is free. ");
	if (context)
		add_size(&text, "Including non-PyTorch memory, this process has ", reserved + context,
			 " memory in use. ");
	if (fraction > 0 && fraction < 1)
		add_size(&text, "", (uint64_t)(fraction * (double)info->total_bytes), " allowed; ");
	add_size(&text, "Of the allocated memory ", allocated, " is allocated by PyTorch");
	if (sums.pools)
		add_size(&text, ", with ", sums.pools, " reserved in private pools (e.g., CUDA Graphs)");
	add_size(&text, ", and ", reserved - allocated, " is reserved by PyTorch but unallocated. ");
	add_size(&text, "The largest free block has ", sums.largest, ". ");
	if (asked.processes) {
		add(&text, "neap asked %llu other process%s for memory that %s only cached, of which ",
		    (unsigned long long)asked.processes, asked.processes == 1 ? "" : "es",
		    asked.processes == 1 ? "it" : "they");
		add_size(&text, "", asked.freed_bytes, " came back. ");
	}
	add(&text,
	    "The allocator is neap's: it gave back what it could before this error, so no setting of PyTorch's "
	    "allocator would have helped.");
}
