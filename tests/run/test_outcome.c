/* The outcome of a command: every kind of end, and similar ones. Also waiting for free memory, and the drain. */
#include "run/drain.h"
#include "run/outcome.h"
#include "support/test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define EXITED(status) ((status) << 8)

static void decide(struct neap_evidence evidence, enum neap_outcome outcome, int exit_status, const char *says)
{
	struct neap_verdict verdict;
	neap_outcome_decide(&evidence, &verdict);
	if (verdict.outcome != outcome || verdict.exit_status != exit_status || !strstr(verdict.evidence, says))
		fail_msg("expected %s %d '%s', got %s %d '%s'", neap_outcome_name(outcome), exit_status, says,
			 neap_outcome_name(verdict.outcome), verdict.exit_status, verdict.evidence);
}

static void test_outcomes(void **state)
{
	(void)state;
	struct neap_evidence ran = {.started = true}, e;
	decide(ran, NEAP_OUTCOME_OK, 0, "");
	e = ran, e.wait_status = EXITED(3);
	decide(e, NEAP_OUTCOME_FAILED, 3, "exit status 3");
	e = ran, e.wait_status = EXITED(127); /* a shell's own: the command itself ran */
	decide(e, NEAP_OUTCOME_FAILED, 127, "exit status 127");
	e = ran, e.wait_status = SIGSEGV;
	decide(e, NEAP_OUTCOME_SIGNALED, 128 + SIGSEGV, "SIGSEGV");
	e = (struct neap_evidence){.spawn_errno = ENOENT, .spawn_name = "nosuch"};
	decide(e, NEAP_OUTCOME_NOT_FOUND, 127, "cannot run 'nosuch': No such file");
	e = (struct neap_evidence){.spawn_errno = EACCES};
	decide(e, NEAP_OUTCOME_NOT_FOUND, 126, "Permission denied");
	e = (struct neap_evidence){.no_memory = true};
	decide(e, NEAP_OUTCOME_NO_MEMORY, 75, "did not become free");
	strcpy(e.wait_text, "needs 5 GiB, more than X has");
	decide(e, NEAP_OUTCOME_NO_MEMORY, 75, "needs 5 GiB, more than X has");
	e = (struct neap_evidence){.canceled_by = SIGINT}; /* while it waited for memory */
	decide(e, NEAP_OUTCOME_CANCELED, 130, "signal 2");
	e = ran, e.canceled_by = SIGINT, e.wait_status = SIGINT;
	decide(e, NEAP_OUTCOME_CANCELED, 130, "signal 2");
	e = ran, e.canceled_by = SIGTERM; /* it handled the signal and ended well */
	decide(e, NEAP_OUTCOME_CANCELED, 0, "signal 15");
	e = ran, e.killed_by = 42, e.wait_status = EXITED(143); /* it handled SIGTERM itself */
	decide(e, NEAP_OUTCOME_KILLED, 143, "by neap kill, process 42");
	e.wait_status = 0, e.timed_out = true;
	decide(e, NEAP_OUTCOME_KILLED, 0, "by neap kill, process 42");
	e = ran, e.timed_out = true, e.wait_status = SIGTERM;
	decide(e, NEAP_OUTCOME_TIMEOUT, 143, "time limit");
	/* It crossed a limit, however it ended. */
	strcpy(e.limit_text, "host memory 3.10 GiB above 3.00 GiB");
	decide(e, NEAP_OUTCOME_TIMEOUT, 143, "time limit");
	e.timed_out = false;
	decide(e, NEAP_OUTCOME_STOPPED, 143, "host memory 3.10 GiB above 3.00 GiB");
	e.wait_status = 0;
	decide(e, NEAP_OUTCOME_STOPPED, 0, "host memory 3.10 GiB above 3.00 GiB");
	e.wait_status = EXITED(1);
	decide(e, NEAP_OUTCOME_STOPPED, 1, "host memory 3.10 GiB above 3.00 GiB");
	/* It was asked to stop early, and did; another status means another failure. */
	strcpy(ran.stop_text, "device memory below 1.00 GiB");
	e = ran, e.wait_status = EXITED(75);
	decide(e, NEAP_OUTCOME_STOPPED, 75, "device memory below 1.00 GiB");
	decide(ran, NEAP_OUTCOME_STOPPED, 0, "device memory below 1.00 GiB");
	e = ran, e.wait_status = EXITED(1);
	decide(e, NEAP_OUTCOME_FAILED, 1, "exit status 1");
	e = ran, e.canceled_by = SIGTERM;
	decide(e, NEAP_OUTCOME_CANCELED, 0, "signal 15");
}

static void test_oom_and_what_looks_like_it(void **state)
{
	(void)state;
	struct neap_evidence oom = {.started = true, .wait_status = EXITED(1), .ooms = 1}, e;
	strcpy(oom.oom_text, "asked for 2.00 GiB");
	decide(oom, NEAP_OUTCOME_OOM, 1, "recorded: asked for 2.00 GiB");
	e = oom, e.wait_status = 0; /* it survived */
	decide(e, NEAP_OUTCOME_OK, 0, "");
	e = oom, e.recovered = true; /* it went on and failed for another reason */
	decide(e, NEAP_OUTCOME_FAILED, 1, "exit status 1");
	strcpy(e.stderr_line, "charlm: out of device memory"); /* its message about the OOM it survived */
	decide(e, NEAP_OUTCOME_FAILED, 1, "exit status 1");
	e = oom, e.wait_status = SIGABRT;
	decide(e, NEAP_OUTCOME_OOM, 128 + SIGABRT, "recorded");
	e = (struct neap_evidence){.started = true, .wait_status = EXITED(1)};
	strcpy(e.stderr_line, "RuntimeError: CUDA out of memory.");
	decide(e, NEAP_OUTCOME_OOM, 1, "stderr: RuntimeError: CUDA out of memory.");
	e = (struct neap_evidence){
		.started = true, .wait_status = SIGKILL, .host_kills = 1, .host_counter = "oom_kill"};
	decide(e, NEAP_OUTCOME_HOST_OOM, 137, "oom_kill rose by 1");
	e.wait_status = EXITED(137); /* of the shell that runs it */
	decide(e, NEAP_OUTCOME_HOST_OOM, 137, "exit status 137, as of a killed one, while oom_kill rose by 1");
	e.wait_status = SIGKILL, e.host_kills = 0;
	decide(e, NEAP_OUTCOME_SIGNALED, 137, "SIGKILL");
	e.host_kills = 1, e.wait_status = SIGTERM; /* the OOM killer sends SIGKILL */
	decide(e, NEAP_OUTCOME_SIGNALED, 143, "SIGTERM");
	e.wait_status = SIGKILL, e.canceled_by = SIGINT; /* that SIGKILL was ours */
	decide(e, NEAP_OUTCOME_CANCELED, 137, "signal 2");
}

/* A lost device is the cause, whatever the command made of it. */
static void test_lost_device(void **state)
{
	(void)state;
	struct neap_evidence e = {.started = true, .wait_status = EXITED(1), .ooms = 1};
	strcpy(e.lost_text, "asking for a device: NVML error 15: GPU is lost");
	strcpy(e.oom_text, "process 7 asked for 1 MiB");
	decide(e, NEAP_OUTCOME_NO_DEVICE, 1, "NVML error 15: GPU is lost");
	e.wait_status = SIGABRT;
	decide(e, NEAP_OUTCOME_NO_DEVICE, 134, "GPU is lost");
	e.wait_status = 0; /* lost, but the command succeeded */
	decide(e, NEAP_OUTCOME_OK, 0, "");
	e.wait_status = EXITED(1), e.lost_text[0] = '\0', e.ooms = 0;
	strcpy(e.lost_line, "CUDA error: uncorrectable ECC error encountered");
	decide(e, NEAP_OUTCOME_NO_DEVICE, 1, "stderr: CUDA error: uncorrectable ECC error encountered");
	static const struct {
		const char *text;
		bool lost;
	} rows[] = {
		{"RuntimeError: CUDA error: uncorrectable ECC error encountered", true},
		{"CUDA_ERROR_ECC_UNCORRECTABLE (code 214)", true},
		{"CUDA error: CUDA-capable device(s) is/are busy or unavailable", true},
		{"CUDA error: uncorrectable NVLink error detected during the execution", true},
		{"CUDA error: an illegal memory access was encountered", false},
		{"CUDA error: unspecified launch failure", false},
		{"CUDA error: hardware stack error", false},
		{"CUDA out of memory", false},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char line[256];
		neap_outcome_scan(rows[i].text, strlen(rows[i].text), NEAP_FAILURE_LOST, line, sizeof line);
		assert_string_equal(line, rows[i].lost ? rows[i].text : "");
	}
}

static void scan(const char *text, const char *expected)
{
	char line[64] = "untouched";
	neap_outcome_scan(text, strlen(text), NEAP_FAILURE_OOM, line, sizeof line);
	assert_string_equal(line, expected);
}

static void test_scan(void **state)
{
	(void)state;
	scan("", "");
	scan("\n\n", "");
	scan("all is well\n", "");
	scan("torch.OutOfMemoryError: tried\n", "torch.OutOfMemoryError: tried");
	scan("first\nRuntimeError: CUDA out of memory. Tried\nlast words", "RuntimeError: CUDA out of memory. Tried");
	scan("neap: out of device memory: asked 1\n\n\n", "neap: out of device memory: asked 1");
	scan("cuda OUT OF MEMORY\n", "");
	/* too long ago: the training continued for many lines */
	char text[4096] = "CUDA out of memory\n";
	for (int i = 0; i < 60; i++)
		strcat(text, "step\n");
	scan(text, "");
	/* a line longer than the room is cut */
	memset(text, 'x', 300);
	strcpy(text + 300, " CUDA out of memory\n");
	char line[64];
	neap_outcome_scan(text, strlen(text), NEAP_FAILURE_OOM, line, sizeof line);
	assert_int_equal(strlen(line), 63);
}

static struct neap_reading reading(uint64_t used_bytes)
{
	return (struct neap_reading){.total_bytes = 10 * GIB,
				     .reserved_bytes = GIB / 2,
				     .used_bytes = used_bytes,
				     .free_bytes = 10 * GIB - GIB / 2 - used_bytes,
				     .reserved_known = true,
				     .processes_known = true};
}

static void list(struct neap_reading *at, pid_t pid, uint64_t bytes)
{
	at->processes[at->process_count++] = (struct neap_reading_process){pid, bytes};
}

static void test_headroom(void **state)
{
	(void)state;
	struct neap_needs needs = {0};
	struct neap_reading empty = reading(0), busy = reading(4 * GIB);
	assert_int_equal(neap_needs_parse("none", &needs, NULL), NEAP_OK);
	assert_int_equal(neap_needs_headroom(&needs, &busy), NEAP_ROOM_NOW);
	assert_int_equal(neap_needs_parse("5.5GiB", &needs, NULL), NEAP_OK);
	assert_int_equal(neap_needs_headroom(&needs, &busy), NEAP_ROOM_NOW);
	assert_int_equal(neap_needs_parse("6GiB", &needs, NULL), NEAP_OK);
	assert_int_equal(neap_needs_headroom(&needs, &busy), NEAP_ROOM_LATER);
	assert_int_equal(neap_needs_headroom(&needs, &empty), NEAP_ROOM_NOW);
	assert_int_equal(neap_needs_parse("9.6GiB", &needs, NULL), NEAP_OK);
	assert_int_equal(neap_needs_headroom(&needs, &empty), NEAP_ROOM_NEVER);
	assert_int_equal(neap_needs_parse("device", &needs, NULL), NEAP_OK);
	assert_int_equal(neap_needs_headroom(&needs, &empty), NEAP_ROOM_NOW);
	assert_int_equal(neap_needs_headroom(&needs, &busy), NEAP_ROOM_LATER);
	struct neap_error err = {0};
	assert_int_equal(neap_needs_parse("lots", &needs, &err), NEAP_EPARSE);
	assert_non_null(strstr(err.message, "'device' or 'none'"));
}

static void test_drain_left(void **state)
{
	(void)state;
	const pid_t run[] = {100, 101};
	struct neap_reading before = reading(2 * GIB), after = reading(2 * GIB);
	list(&before, 50, 2 * GIB);
	list(&after, 50, 2 * GIB);
	assert_true(neap_drain_left(&before, &after, run, 2) == 0);
	/* the dead run is no longer listed, but its bytes are still in use */
	after = reading(5 * GIB);
	list(&after, 50, 2 * GIB);
	assert_true(neap_drain_left(&before, &after, run, 2) == 3 * GIB);
	/* or it is still listed: counted once */
	list(&after, 101, 3 * GIB);
	assert_true(neap_drain_left(&before, &after, run, 2) == 3 * GIB);
	/* a new or growing neighbour does not count */
	after = reading(5 * GIB);
	list(&after, 50, 3 * GIB);
	list(&after, 60, 2 * GIB);
	assert_true(neap_drain_left(&before, &after, run, 2) == 0);
	/* a neighbour that left does not hide our bytes */
	after = reading(3 * GIB);
	assert_true(neap_drain_left(&before, &after, run, 2) == 3 * GIB);
	/* the driver's bookkeeping */
	after = reading(2 * GIB + NEAP_DRAIN_SLACK);
	list(&after, 50, 2 * GIB);
	assert_true(neap_drain_left(&before, &after, run, 2) == 0);
	/* listed without bytes: still there */
	after = reading(2 * GIB);
	list(&after, 50, 2 * GIB);
	list(&after, 100, NEAP_BYTES_UNKNOWN);
	assert_true(neap_drain_left(&before, &after, run, 2) > 0);
	/* no list at all: the device's growth counts */
	after = reading(6 * GIB), after.processes_known = false;
	before = reading(2 * GIB), before.processes_known = false;
	assert_true(neap_drain_left(&before, &after, run, 2) == 4 * GIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_outcomes),    cmocka_unit_test(test_oom_and_what_looks_like_it),
		cmocka_unit_test(test_lost_device), cmocka_unit_test(test_scan),
		cmocka_unit_test(test_headroom),    cmocka_unit_test(test_drain_left),
	};
	return cmocka_run_group_tests_name("outcome", tests, NULL, NULL);
}
