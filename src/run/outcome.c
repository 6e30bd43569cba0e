/* run/outcome.c: see outcome.h. The order of the tests is the decision. */
#include "run/outcome.h"

#include "base/spawn.h"
#include "neap/train.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* How many lines from the end are searched: enough for a traceback with its OOM message and a launcher's last lines.
 */
#define TAIL_LINES 40

static const char *const oom_phrases[] = {
	"CUDA out of memory",       "OutOfMemoryError",          "out of device memory",
	"CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation", "RESOURCE_EXHAUSTED: Out of memory",
};

/* CUDA's errors for a device that is unusable, for now or forever: CUresult 46, 214 and 220, by name and by the
 * runtime's message. 700, 714 and 719 are left out: usually the program caused them, and if the device did, NVML
 * reports it. */
static const char *const lost_phrases[] = {
	"CUDA_ERROR_ECC_UNCORRECTABLE",  "uncorrectable ECC error",
	"cudaErrorECCUncorrectable",     "CUDA_ERROR_NVLINK_UNCORRECTABLE",
	"uncorrectable NVLink error",    "cudaErrorNvlinkUncorrectable",
	"CUDA_ERROR_DEVICE_UNAVAILABLE", "busy or unavailable",
	"cudaErrorDevicesUnavailable",   "GPU is lost",
};

static const struct {
	const char *const *items;
	size_t count;
} phrases[] = {
	[NEAP_FAILURE_OOM] = {oom_phrases, sizeof oom_phrases / sizeof *oom_phrases},
	[NEAP_FAILURE_LOST] = {lost_phrases, sizeof lost_phrases / sizeof *lost_phrases},
};

static bool contains(const char *text, size_t length, const char *phrase)
{
	return memmem(text, length, phrase, strlen(phrase)) != NULL;
}

void neap_outcome_scan(const char *text, size_t length, enum neap_outcome_failure kind, char *ret_line,
		       size_t capacity)
{
	ret_line[0] = '\0';
	size_t end = length;
	for (int lines = 0; end > 0 && lines < TAIL_LINES; lines++) {
		if (text[end - 1] == '\n')
			end--;
		const char *newline = end ? memrchr(text, '\n', end) : NULL;
		size_t begin = newline ? (size_t)(newline - text) + 1 : 0;
		for (size_t i = 0; i < phrases[kind].count; i++) {
			if (contains(text + begin, end - begin, phrases[kind].items[i])) {
				snprintf(ret_line, capacity, "%.*s", (int)(end - begin < 4096 ? end - begin : 4096),
					 text + begin);
				return;
			}
		}
		end = begin;
	}
}

static void decide(struct neap_verdict *verdict, enum neap_outcome outcome, const char *evidence)
{
	verdict->outcome = outcome;
	snprintf(verdict->evidence, sizeof verdict->evidence, "%s", evidence);
}

static void decide_failure(const struct neap_evidence *evidence, struct neap_verdict *verdict)
{
	char text[320];
	/* A shell or a launcher reports a killed child this way. */
	bool killed = neap_exit_code(evidence->wait_status) == 128 + SIGKILL;
	if (evidence->lost_text[0]) {
		decide(verdict, NEAP_OUTCOME_NO_DEVICE, evidence->lost_text);
	} else if (evidence->lost_line[0]) {
		snprintf(text, sizeof text, "stderr: %s", evidence->lost_line);
		decide(verdict, NEAP_OUTCOME_NO_DEVICE, text);
	} else if (evidence->ooms && !evidence->recovered) {
		snprintf(text, sizeof text, "recorded: %s", evidence->oom_text);
		decide(verdict, NEAP_OUTCOME_OOM, text);
	} else if (evidence->stderr_line[0] && !evidence->ooms) { /* stderr also shows an OOM that was survived */
		snprintf(text, sizeof text, "stderr: %s", evidence->stderr_line);
		decide(verdict, NEAP_OUTCOME_OOM, text);
	} else if (killed && evidence->host_kills) {
		snprintf(text, sizeof text, "%s while %s rose by %llu",
			 WIFSIGNALED(evidence->wait_status) ? "killed by SIGKILL"
							    : "exit status 137, as of a killed one,",
			 evidence->host_counter ? evidence->host_counter : "oom_kill",
			 (unsigned long long)evidence->host_kills);
		decide(verdict, NEAP_OUTCOME_HOST_OOM, text);
	} else if (WIFSIGNALED(evidence->wait_status)) {
		const char *name = sigabbrev_np(WTERMSIG(evidence->wait_status));
		snprintf(text, sizeof text, "ended by signal %d (SIG%s)", WTERMSIG(evidence->wait_status),
			 name ? name : "?");
		decide(verdict, NEAP_OUTCOME_SIGNALED, text);
	} else {
		bool unread = evidence->unread_text[0];
		snprintf(text, sizeof text, "exit status %d%s%s%s%s", WEXITSTATUS(evidence->wait_status),
			 evidence->error_line[0] ? ": " : "", evidence->error_line,
			 unread ? "; whether memory ran out is not known: " : "", evidence->unread_text);
		decide(verdict, NEAP_OUTCOME_FAILED, text);
	}
}

void neap_outcome_decide(const struct neap_evidence *evidence, struct neap_verdict *ret_verdict)
{
	struct neap_verdict verdict = {.exit_status = neap_exit_code(evidence->wait_status)};
	char text[256];
	if (evidence->no_memory) {
		verdict.exit_status = 75; /* sysexits' "try again later" */
		decide(&verdict, NEAP_OUTCOME_NO_MEMORY,
		       evidence->wait_text[0] ? evidence->wait_text
					      : "the bytes it needs did not become free in time");
	} else if (evidence->spawn_errno) {
		verdict.exit_status = evidence->spawn_errno == ENOENT ? 127 : 126;
		snprintf(text, sizeof text, "cannot run '%s': %s", evidence->spawn_name,
			 strerror(evidence->spawn_errno));
		decide(&verdict, NEAP_OUTCOME_NOT_FOUND, text);
	} else if (evidence->canceled_by) {
		if (!evidence->started)
			verdict.exit_status = 128 + evidence->canceled_by;
		snprintf(text, sizeof text, "neap run received signal %d", evidence->canceled_by);
		decide(&verdict, NEAP_OUTCOME_CANCELED, text);
	} else if (evidence->killed_by) {
		snprintf(text, sizeof text, "by neap kill, process %d", evidence->killed_by);
		decide(&verdict, NEAP_OUTCOME_KILLED, text);
	} else if (evidence->timed_out) {
		decide(&verdict, NEAP_OUTCOME_TIMEOUT, "its time limit passed");
	} else if (evidence->limit_text[0]) { /* however the command ended */
		decide(&verdict, NEAP_OUTCOME_STOPPED, evidence->limit_text);
	} else if (evidence->stop_text[0] && (verdict.exit_status == 0 || verdict.exit_status == NEAP_EXIT_STOPPED)) {
		decide(&verdict, NEAP_OUTCOME_STOPPED, evidence->stop_text);
	} else if (verdict.exit_status == 0) {
		decide(&verdict, NEAP_OUTCOME_OK, "");
	} else {
		decide_failure(evidence, &verdict);
	}
	*ret_verdict = verdict;
}
