#include "judge_test.h"

#include <string.h>
#include <unistd.h>

const char plain[] = "a 1 20971520 0\n";

struct sim_profile profile = {
	.name = "made", .gpu_name = "Made", .compute_major = 8, .compute_minor = 6, .context_mib = BARE / MIB};

static struct neap_trace *read_trace(const char *text)
{
	char path[] = "/tmp/neap-judge-XXXXXX";
	struct neap_trace *trace = NULL;
	struct neap_error err;
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	enum neap_status status = neap_trace_read(path, &trace, &err);
	unlink(path);
	if (status)
		fail_msg("%s", err.message);
	return trace;
}

struct world *make(const char *text)
{
	struct world *world = calloc(1, sizeof *world);
	assert_non_null(world);
	world->plan.count = world->plan.run_count = 1;
	world->plan.gpus[0] = (struct neap_estimate_gpu){.name = "made", .profile = &profile, .reserved_bytes = OWN};
	world->run.trace = read_trace(text);
	world->run.process_count = 1;
	world->run.processes[0] = (struct neap_estimate_process){.steps = 3, .device_uuid = "GPU-0"};
	world->run.result.outcome = NEAP_OUTCOME_STOPPED;
	return world;
}

void drop(struct world *world)
{
	neap_trace_free(world->run.trace);
	free(world);
}

void add_gap(struct world *world, const char *library, const char *function, uint64_t calls, uint64_t low,
	     uint64_t high)
{
	struct neap_simulated_gap *gap = &world->run.gaps.gaps[world->run.gaps.gap_count++];
	*gap = (struct neap_simulated_gap){
		.kind = NEAP_GAP_WORKSPACE, .calls = calls, .low_bytes = low, .high_bytes = high};
	snprintf(gap->library, sizeof gap->library, "%s", library);
	snprintf(gap->function, sizeof gap->function, "%s", function);
}

const struct neap_estimate_verdict *judge(struct world *world, uint64_t bytes)
{
	struct neap_error err = {0};
	world->plan.gpus[0].total_bytes = OWN + bytes;
	memset(&world->verdict, 0xee, sizeof world->verdict);
	if (neap_estimate_judge(&world->plan, 0, &world->run, NULL, NULL, &world->verdict, &err))
		fail_msg("%s", err.message);
	return &world->verdict;
}

void expect(struct world *world, uint64_t bytes, enum neap_estimate_fits fits, enum neap_estimate_doubt doubt,
	    int64_t headroom)
{
	const struct neap_estimate_verdict *verdict = judge(world, bytes);
	if (verdict->fits != fits || verdict->doubt != doubt || verdict->headroom_bytes != headroom)
		fail_msg(
			"with %llu bytes: fits %d (expected %d), doubt '%s' (expected '%s'), headroom %lld (expected "
			"%lld)",
			(unsigned long long)bytes, verdict->fits, fits, neap_estimate_doubt_name(verdict->doubt),
			neap_estimate_doubt_name(doubt), (long long)verdict->headroom_bytes, (long long)headroom);
}
