/* run/outcome.h: decides how a command ended, from the evidence. Pure. */
#ifndef NEAP_RUN_OUTCOME_H
#define NEAP_RUN_OUTCOME_H

#include "store/result.h"

struct neap_evidence {
	bool started;             /* the command ran: wait_status says how it ended */
	bool no_memory;           /* never started: neap gave up waiting for the bytes it needs */
	char wait_text[200];      /* why neap gave up; "" unknown */
	int spawn_errno;          /* never ran: exec failed with this errno */
	char spawn_name[128];     /* the program that could not be run */
	int wait_status;          /* of waitpid; if the command ran */
	int canceled_by;          /* a signal the user sent to the supervisor; 0 none */
	int killed_by;            /* the process of the `neap kill` that ended it; 0 none */
	bool timed_out;           /* its time limit passed and we sent signals */
	uint64_t ooms;            /* in the recordings of this attempt */
	bool recovered;           /* after the last OOM the training finished a step */
	char oom_text[256];       /* describes the last OOM; "" when unknown */
	char unread_text[256];    /* why a recording could not be read; "" all could */
	char stderr_line[256];    /* an out-of-memory line at the end of its stderr; "" none */
	char error_line[200];     /* its exception, or the last line it wrote; "" unknown */
	char lost_text[200];      /* the driver's message that the device is lost; "" none */
	char lost_line[256];      /* a line at the end of its stderr that reports a lost device; "" none */
	char stop_text[256];      /* the session asked the program to stop early, and why; "" it did not */
	char limit_text[160];     /* the limit that it crossed (run/limits.h), if we sent signals; "" none */
	uint64_t host_kills;      /* how much the host's oom_kill counter rose during the start */
	const char *host_counter; /* its name; NULL unknown */
};

struct neap_verdict {
	enum neap_outcome outcome;
	int exit_status; /* 0..255 */
	char evidence[320];
};

/* Takes the first outcome that holds: not started; not found; canceled; killed; timeout; stopped at a limit; stopped
 * early; success; device lost; OOM; host OOM; signal; failure. A command that ends with 0 has succeeded, even after
 * OOMs. If it was asked to stop early and ends with 0 or NEAP_EXIT_STOPPED (75), it has stopped early. */
void neap_outcome_decide(const struct neap_evidence *evidence, struct neap_verdict *ret_verdict);

enum neap_outcome_failure {
	NEAP_FAILURE_OOM,  /* device memory ran out: messages of PyTorch, CUDA, JAX or neap */
	NEAP_FAILURE_LOST, /* the device is lost: errors of the device, never of the program */
};

/* Finds a line of this kind among the last lines of a log and copies it into `ret_line`, cut to `capacity`; "" if
 * there is none. `text` needs no terminator. */
void neap_outcome_scan(const char *text, size_t length, enum neap_outcome_failure kind, char *ret_line,
		       size_t capacity);

#endif
