/* read_trace FILE: what reading a trace costs: seconds, and the highest memory above what the process had before.
 * bench/pickle.sh compares it with Python's. */
#include "base/clock.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

int main(int argc, char **argv)
{
	struct neap_trace *trace = NULL;
	struct neap_error err = {0};
	struct rusage usage;
	struct stat about;
	uint64_t events = 0;

	if (argc != 2) {
		fprintf(stderr, "usage: read_trace FILE\n");
		return 64;
	}
	uint64_t begin = neap_clock_now(neap_clock_system());
	if (neap_trace_read(argv[1], &trace, &err) != NEAP_OK) {
		fprintf(stderr, "%s\n", err.message);
		return 65;
	}
	uint64_t end = neap_clock_now(neap_clock_system());
	getrusage(RUSAGE_SELF, &usage);
	for (size_t i = 0; i < trace->device_count; i++)
		events += trace->devices[i].event_count;
	if (stat(argv[1], &about) != 0)
		return 66;
	/* seconds, peak bytes, events: for the whole process, as Python's figures */
	printf("%.3f %" PRIu64 " %" PRIu64 "\n", (double)(end - begin) / 1e9, (uint64_t)usage.ru_maxrss * 1024,
	       events);
	neap_trace_free(trace);
	return 0;
}
