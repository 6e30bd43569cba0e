/* trace/pools.c: see the header. Two sorted tables, made once. Most snapshots have no private pool; then both are
 * empty. */
#include "trace/pools.h"

#include <stdlib.h>

static int by_key(const void *left, const void *right)
{
	const struct neap_pool_entry *a = left, *b = right;
	return a->key != b->key ? (a->key > b->key) - (a->key < b->key) : a->stream - b->stream;
}

static bool is_private(const struct neap_trace *trace, uint16_t stream)
{
	return trace->streams[stream].pool[0] || trace->streams[stream].pool[1];
}

/* The segments are sorted by handle. Keeps one segment of each handle, if all of its segments are in the same private
 * pool, and drops the others. */
static size_t keep_sole(const struct neap_trace *trace, struct neap_pool_entry *entries, size_t count)
{
	size_t kept = 0;

	for (size_t first = 0, next; first < count; first = next) {
		for (next = first; next < count && entries[next].key == entries[first].key;)
			next++;
		if (entries[next - 1].stream == entries[first].stream && is_private(trace, entries[first].stream))
			entries[kept++] = entries[first];
	}
	return kept;
}

static void make(struct neap_pools *pools, struct neap_build *build)
{
	const struct neap_trace *trace = build->trace;
	size_t count = trace->segment_count, private_count = 0;

	pools->made = true;
	for (size_t i = 0; i < count; i++)
		private_count += is_private(trace, trace->segments[i].stream);
	if (private_count == 0)
		return;
	pools->segments = calloc(private_count, sizeof *pools->segments);
	pools->streams = calloc(count, sizeof *pools->streams);
	if (!pools->segments || !pools->streams) {
		build->failed = build->failed ? build->failed : NEAP_ENOMEM;
		return;
	}
	for (size_t i = 0; i < count; i++) {
		const struct neap_trace_segment *segment = &trace->segments[i];
		pools->streams[i] = (struct neap_pool_entry){.key = trace->streams[segment->stream].handle,
							     .stream = segment->stream};
		if (is_private(trace, segment->stream))
			pools->segments[pools->segment_count++] = (struct neap_pool_entry){
				.key = segment->address, .size = segment->size, .stream = segment->stream};
	}
	qsort(pools->segments, pools->segment_count, sizeof *pools->segments, by_key);
	qsort(pools->streams, count, sizeof *pools->streams, by_key);
	pools->stream_count = keep_sole(trace, pools->streams, count);
}

/* Returns the last entry whose key is at most `key`; NULL: there is none. */
static const struct neap_pool_entry *find(const struct neap_pool_entry *entries, size_t count, uint64_t key)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (entries[middle].key <= key)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 ? &entries[low - 1] : NULL;
}

uint16_t neap_pools_stream(struct neap_pools *pools, struct neap_build *build, uint64_t handle,
			   const uint64_t *address)
{
	const struct neap_pool_entry *found = NULL;

	if (!pools->made)
		make(pools, build);
	if (pools->segment_count > 0 && address) {
		found = find(pools->segments, pools->segment_count, *address);
		if (found &&
		    (*address - found->key >= found->size || build->trace->streams[found->stream].handle != handle))
			found = NULL;
	} else if (pools->stream_count > 0) {
		found = find(pools->streams, pools->stream_count, handle);
		found = found && found->key == handle ? found : NULL;
	}
	return found ? found->stream : neap_build_stream(build, handle, 0, 0);
}

void neap_pools_fini(struct neap_pools *pools)
{
	free(pools->segments);
	free(pools->streams);
	*pools = (struct neap_pools){0};
}
