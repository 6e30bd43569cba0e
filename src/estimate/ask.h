/* estimate/ask.h: estimates another command, by running `neap estimate --json` and reading its answer. `neap run`
 * uses it before it starts a command, `neap series` for experiments whose needs are not known otherwise. The asking
 * process runs no part of the program, so a program that fails or hangs does it no harm. One thread.
 *
 * It starts a program of its own, instead of calling the code or forking, because:
 *
 *   - reading and replaying the run may take gigabytes: if the host lacks them, the kernel ends that process and not
 *     the supervisor of a series;
 *   - the environment, the folder and CUDA_VISIBLE_DEVICES are those of the experiment, and a process has each once;
 *   - the supervisor has NVML loaded, which a fork without exec must not use. */
#ifndef NEAP_ESTIMATE_ASK_H
#define NEAP_ESTIMATE_ASK_H

#include "estimate/estimate.h"

struct neap_estimate_question {
	const char *program;          /* neap's own */
	const char *gpus;             /* the value of --gpu: NEAP_ESTIMATE_HERE, a profile */
	char *const *command;         /* NULL-terminated; {NAME} not replaced yet */
	char *const *parameters;      /* "NAME=VALUE", NULL-terminated; NULL: none */
	char *const *environment;     /* "NAME=VALUE" over this process's own; NULL: none */
	const char *directory;        /* the folder in which it starts; NULL: the current one */
	bool in_place;                /* --in-place: the program's files are written for real */
	const char *device;           /* CUDA_VISIBLE_DEVICES; NULL: unchanged */
	bool (*go_on)(void *context); /* called now and then; false ends the estimate. NULL: not called */
	void *context;
};

#define NEAP_ESTIMATE_CHANGES 8

/* The answer for the GPU on which the program fits best; among equals the first. */
struct neap_estimate_answer {
	char gpu[48];
	uint64_t total_bytes;
	uint64_t low_bytes, high_bytes; /* how much of the GPU the program takes in all, with its contexts */
	int64_t headroom_bytes;
	enum neap_estimate_fits fits;
	enum neap_estimate_doubt doubt; /* SURE unless `fits` is UNSURE */
	/* A value of PYTORCH_CUDA_ALLOC_CONF with which it fits; "": there is none, or it fits without one. */
	char setting[256];
	struct {
		char name[40];
		uint64_t low_bytes, high_bytes; /* its predicted saving */
	} changes[NEAP_ESTIMATE_CHANGES];
	size_t change_count;
	double samples_share; /* the share of the samples that is predicted to fit; 0: not known */
};

/* The text with which a line of progress of `neap estimate` begins. Such a line never explains a failure. */
#define NEAP_ESTIMATE_STILL "neap estimate: still at "

/* Errors: NEAP_ECANCELED: `go_on` returned false; NEAP_ESTATE: there is no estimate, and the message says why in the
 * words of `neap estimate`; NEAP_EPARSE, NEAP_ENOMEM, NEAP_EIO. */
enum neap_status neap_estimate_ask(const struct neap_estimate_question *question,
				   struct neap_estimate_answer *ret_answer, struct neap_error *err);

#endif
