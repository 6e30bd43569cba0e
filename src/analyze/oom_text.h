/* analyze/oom_text.h: reads the text of an out-of-memory error, for when there is nothing else. Pure.
 *
 * PyTorch's message has had three shapes since 1.0, with different figures:
 *
 *   1.0 - 1.4   (GPU 0; T total capacity; A already allocated; F free; C cached)       R = A + C
 *   1.5 - 2.0   (GPU 0; T total capacity; A already allocated; F free; R reserved in total by PyTorch)
 *   2.1 -       GPU 0 has a total capacity of T of which F is free. [Process P has O memory in use.]... Including
 *               non-PyTorch memory, this process has M memory in use. [L allowed;] Of the allocated memory A is
 *               allocated by PyTorch, [with G allocated in private pools,] and C is reserved by PyTorch but
 *               unallocated.
 *
 *   cudaMallocAsync   Allocation on device 0 would exceed allowed memory. (out of memory) Currently allocated : A
 *               Requested : S Device limit : T Free (according to CUDA): F PyTorch limit (...) : L
 *   JAX         RESOURCE_EXHAUSTED: Out of memory [while] ... S bytes
 *   vLLM        No available memory for the cache blocks. Its log has the figures before it, worded differently from
 *               version to version: what is left for the KV cache = T * utilization - weights - outside PyTorch -
 *               activations at their peak, which is then 0 or less
 *   Slurm       of host memory: Detected N oom_kill event[s] in StepId=J.S ...; oom-kill event(s) in step J.S cgroup
 *               ...; Exceeded job|step memory limit at some point; StepId=J.S exceeded memory limit (USED > LIMIT)
 *
 * The driver's own words ("CUDA error: out of memory", "cuda runtime error (2)") and a library's error code
 * (CUBLAS_STATUS_ALLOC_FAILED, NCCL's) carry no figure at all. Figures are rounded to the text's last digit;
 * `slack_bytes` is what that rounding may hide.
 *
 * The arithmetic. S: asked of the driver (PyTorch prints the *segment* it would have made, not the tensor), C:
 * cached, F: free, O: what others hold. PyTorch gives back every whole cached segment before it fails, so C is what
 * live blocks pin. Then
 *
 *   S > T                        the request alone is larger than the device
 *   L given and F >= S           the process's limit refused
 *   F + C >= S                   fragmentation: the bytes are there, not in one piece
 *   F + O >= S (or F + C + O)    neighbours; also before fragmentation, where they hold a quarter of the device and
 *                                C is under a tenth of what is reserved; also with F >= S, where F is a scrap (the
 *                                driver cannot hand out the last pages of a full device)
 *   else                         capacity
 */
#ifndef NEAP_ANALYZE_OOM_TEXT_H
#define NEAP_ANALYZE_OOM_TEXT_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEAP_OOM_TEXT_UNKNOWN   UINT64_MAX
#define NEAP_OOM_TEXT_PROCESSES 16

enum neap_oom_wording {
	NEAP_WORDING_CACHED,    /* PyTorch 1.0 to 1.4 */
	NEAP_WORDING_RESERVED,  /* PyTorch 1.5 to 2.0 */
	NEAP_WORDING_SENTENCES, /* PyTorch 2.1 and later */
	NEAP_WORDING_BARE,      /* the driver's or runtime's own words: no figures */
	NEAP_WORDING_ASYNC,     /* PyTorch's backend cudaMallocAsync */
	NEAP_WORDING_JAX,
	NEAP_WORDING_LIBRARY, /* the error code of cuBLAS, cuDNN or NCCL: no figures */
	NEAP_WORDING_VLLM,
	NEAP_WORDING_SLURM,
};

enum neap_oom_text_cause {
	NEAP_TEXT_UNKNOWN, /* the figures do not suffice */
	NEAP_TEXT_REQUEST, /* the request alone is larger than the device or the limit */
	NEAP_TEXT_LIMIT,   /* the limit set on the process */
	NEAP_TEXT_FRAGMENTATION,
	NEAP_TEXT_NEIGHBOURS, /* would have fitted without what others hold */
	NEAP_TEXT_BOTH,       /* neighbours and fragmentation together */
	NEAP_TEXT_CAPACITY,
	NEAP_TEXT_REFUSED, /* enough was free: refused for a reason outside these figures */
	NEAP_TEXT_HOST,    /* host memory, by the limit of a job */
};

struct neap_oom_text {
	size_t position; /* of the message in the text, bytes */
	uint32_t line;   /* 0: the caller counts lines, once for a whole log */
	enum neap_oom_wording wording;
	char backend[8]; /* "CUDA", "HIP", "XPU", "JAX", "cuBLAS", "cuDNN", "NCCL", "vLLM", "Slurm" */
	int gpu;         /* the ordinal the process used; -1 unknown */
	/* NEAP_OOM_TEXT_UNKNOWN where the text does not say */
	uint64_t tried_bytes, total_bytes, free_bytes, allowed_bytes, process_bytes, allocated_bytes, private_bytes,
		cached_bytes, reserved_bytes, others_bytes;
	uint64_t slack_bytes;         /* the roundings of the figures compared, summed */
	bool absurd_process;          /* process_bytes had wrapped around, and was dropped */
	bool spilled;                 /* more allocated than the device has: the driver spilled to host memory */
	bool others_have_own_context; /* others_bytes could not be separated from this process's context and libraries
				       */
	bool self_by_other_pid;       /* the only process named is this one, under a PID of another namespace */
	size_t process_count;         /* the other processes that the text names */
	struct {
		uint64_t pid, bytes;
	} processes[NEAP_OOM_TEXT_PROCESSES];
	/* vLLM's: */
	uint64_t weights_bytes, outside_bytes, activation_bytes;
	double utilization;       /* gpu_memory_utilization; 0: unknown */
	double least_utilization; /* any higher one leaves memory for the cache; 0: unknown */
	char step[32];            /* Slurm's, "123.batch"; "": unknown */
	enum neap_oom_text_cause cause;
	bool close_call;          /* within slack_bytes of another cause */
	uint64_t shortfall_bytes; /* S - F: what was missing, 0 when nothing; UNKNOWN */
};

/* Reads the next message of `text` (any bytes) at or after *position, and moves *position behind it. Line breaks,
 * boxes and colours of a log may stand between its words. Errors: NEAP_ENOENT when there is none. */
enum neap_status neap_oom_text_next(const char *text, size_t length, size_t *position,
				    struct neap_oom_text *ret_found, struct neap_error *err);

/* oom_log.c. Reads at most `most` different messages of a log, with their lines: ranks and retries repeat one
 * another. Returns how many. `*ret_more`: how many repeat an earlier one, or come after the last one read. */
size_t neap_oom_log_messages(const char *log, size_t length, struct neap_oom_text *ret_messages, size_t most,
			     size_t *ret_more);

/* Whether the text has no figure. */
bool neap_oom_text_bare(const struct neap_oom_text *found);

/* "fragmentation" and so on: the name in JSON. Static. */
const char *neap_oom_text_cause_name(enum neap_oom_text_cause cause);
/* The program, or the versions of PyTorch, with this wording. Static. */
const char *neap_oom_wording_name(enum neap_oom_wording wording);

#endif
