/* estimate/estimate.h: whether a program fits on a GPU, from runs of it on the simulator.
 *
 *   GPUs that were asked for ── neap_estimate_plan ── one run for each architecture (runs.h)
 *                                                         │
 *                                    its folder ── neap_estimate_read ── peaks, trace, analysis
 *                                                         │
 *   each GPU ── neap_estimate_judge: the exact replay of that trace in the GPU's memory ── fits or not, headroom
 *
 * A run uses a device of its GPUs' architecture with the memory of the largest GPU, so that it does not fail.
 * PyTorch's allocations depend on the architecture (workspaces, kernels' scratch), and not on the memory until that
 * runs out. A replay then shows whether a smaller GPU is enough.
 *
 * Memory of a GPU:   total = driver's own + context + what PyTorch may reserve
 *
 * The context is all the memory that a process takes beside PyTorch's allocator. It is an interval: the sum of the
 * intervals of its parts. Each part says where its figure comes from. Only a GPU tells the exact figure. One thread.
 */
#ifndef NEAP_ESTIMATE_ESTIMATE_H
#define NEAP_ESTIMATE_ESTIMATE_H

#include "analyze/analysis.h"
#include "analyze/predict.h"
#include "estimate/code.h"
#include "estimate/view.h"
#include "run/simulated.h"
#include "sim/profiles/profile.h"
#include "store/result.h"

#define NEAP_ESTIMATE_GPUS      32
#define NEAP_ESTIMATE_PROCESSES 64 /* of one run */
#define NEAP_ESTIMATE_READS     64
#define NEAP_ESTIMATE_STEADY    3            /* updates that took no more memory than earlier ones */
#define NEAP_ESTIMATE_COMPILED  8            /* updates in which torch.compile compiled */
#define NEAP_ESTIMATE_PLENTY    (1ull << 42) /* a device's memory for a program that fits on no GPU */

struct neap_estimate_gpu {
	char name[48]; /* the name that the user gave: "a100-80gb" */
	const struct sim_profile *profile;
	uint64_t total_bytes, reserved_bytes; /* reserved: the driver's own */
	size_t run;                           /* index of the run with its architecture */
	bool is_limit;                        /* it is not a GPU, but a bound on the bytes of the process */
};

/* The GPUs that an estimate is for, and the runs that it takes. A zeroed struct is empty. */
struct neap_estimate_plan {
	struct neap_estimate_gpu gpus[NEAP_ESTIMATE_GPUS];
	size_t count;
	size_t run_gpus[NEAP_ESTIMATE_GPUS]; /* the largest GPU of each run */
	size_t run_count;
	unsigned devices; /* how many devices a run has */
	uint64_t memory_bytes;
	const char *values; /* "auto", "full" or "none", as NEAP_SIM has it; NULL: auto */
	/* How much host memory values may take in each process; 0: NEAP_SIM's default. */
	uint64_t values_memory_bytes;
	bool rungs_known; /* the next field is known */
	uint32_t rungs;   /* bits 1u << enum neap_rung, whose savings are not predicted */
};

/* Whether the text is a valid choice for `values`: auto, full or none. */
bool neap_estimate_values_known(const char *values);

/* Takes values_memory= from the caller's NEAP_SIM (NULL: not set). It is the only word of NEAP_SIM that also applies
 * to the runs. Errors: NEAP_EPARSE. */
enum neap_status neap_estimate_bound_values(struct neap_estimate_plan *plan, const char *simulated,
					    struct neap_error *err);

/* In a list of GPUs this word stands for the GPUs of this machine. */
#define NEAP_ESTIMATE_HERE      "here"
#define NEAP_ESTIMATE_HERE_MOST 8

struct neap_estimate_here {
	struct {
		char gpu_name[96]; /* the driver's name */
		uint64_t total_bytes, reserved_bytes;
	} gpus[NEAP_ESTIMATE_HERE_MOST]; /* each kind once */
	size_t count;
	unsigned devices; /* how many a program sees */
};

/* `gpus`: profiles separated by commas ("h100-80gb,8xa100-80gb,here"); NULL: a list of common ones. `limit_bytes`:
 * a bound instead of a GPU's memory, on the architecture of the first GPU; 0: none. `here`: for "here"; NULL: not
 * known. Errors: NEAP_EPARSE for a name that is not a profile, and for a GPU of this machine that has none;
 * NEAP_EINVAL for too many. */
enum neap_status neap_estimate_plan(const char *gpus, uint64_t limit_bytes, const struct neap_estimate_here *here,
				    struct neap_estimate_plan *ret_plan, struct neap_error *err);

/* Writes NEAP_SIM for a run. `memory_bytes`: its device's memory; 0: the plan's. */
void neap_estimate_spec(const struct neap_estimate_plan *plan, size_t run, uint64_t memory_bytes, const char *world,
			char *ret_text, size_t capacity);

/* A line of the program that read values from the device. On the simulator they are zeros. */
struct neap_estimate_read {
	char file[256], function[64], reader[24], use[8]; /* use: "value", "branch" or "size" */
	uint64_t line, count;
};

/* The convolution of the program for which cuDNN usually takes the largest workspace. */
struct neap_estimate_convolution {
	char place[256];          /* the line: "model.py:12 forward"; "": none was found */
	uint64_t workspace_bytes; /* 0: it usually takes none */
};

/* One process of a run that used PyTorch's allocator. */
struct neap_estimate_process {
	uint64_t pid, rank;       /* rank UINT64_MAX: none */
	uint64_t steps, forwards; /* forwards: counted if the program is bounded by them */
	/* The last step in which the peak of requested or reserved bytes grew. */
	uint64_t grew_at;
	/* By how many bytes the peaks grew in that step, over all devices. */
	uint64_t grew_requested, grew_reserved;
	uint64_t compiled[NEAP_ESTIMATE_COMPILED]; /* updates, from 1, in which torch.compile compiled; 0: no more */
	uint64_t compiled_more;                    /* how many more such updates there were */
	bool optimizer;                            /* it made an optimizer */
	bool shared; /* its figures come from the run on another architecture, in which it did the same */
	struct neap_estimate_read waited; /* where its main thread was at the time limit; line 0: not known */
	size_t device;                    /* the device on which it reserved most */
	char device_uuid[48];
	/* The peaks on that device, by PyTorch's statistics. */
	uint64_t requested_peak, allocated_peak, reserved_peak;
	char snapshot[4096];
};

/* What was found in one run. Free with neap_estimate_run_fini. */
struct neap_estimate_run {
	struct neap_result result;
	char torch[48], cuda[16];
	char architectures[512]; /* the architectures for which this PyTorch has kernels: "sm_80 sm_90 " */
	bool compiled,
		has_triton;     /* compiled: kernels of torch.compile were launched; without Triton its graphs ran */
	bool computed;          /* the host computed values; otherwise they read as zeros */
	char not_computed[400]; /* the operations that the host could not compute: "aten::a, aten::b"; "": none */
	/* Lines that read values were counted only until torch.compile compiled for the first time. */
	bool reads_hidden;
	struct neap_estimate_process processes[NEAP_ESTIMATE_PROCESSES]; /* by rank, then PID */
	size_t process_count;
	size_t worst; /* the index of the process that reserved most; the fields below are about it */
	uint64_t requested_peak, allocated_peak, reserved_peak;
	unsigned by_address; /* the minor number of a PyTorch that chooses by addresses; 0: it chooses by age */
	uint64_t reserved_low, reserved_high; /* the lowest and highest reserved_peak over all orders of addresses */
	struct neap_trace *trace;
	struct neap_analysis analysis;
	struct neap_estimate_read reads[NEAP_ESTIMATE_READS]; /* the most critical first */
	size_t read_count;
	uint64_t reads_lost; /* how many lines did not fit into `reads` */
	struct neap_estimate_convolution convolution;
	struct neap_simulated gaps;
	struct neap_code code;       /* of the process that reserved most */
	struct neap_view_facts view; /* the files that the program could write and did write; also of a failed run */
};

/* Reads what a run left. Errors: NEAP_ENOENT: no process of it used PyTorch's allocator; those of reading. */
enum neap_status neap_estimate_read(const char *folder, struct neap_estimate_run *ret_run, struct neap_error *err);
/* Returns how many of the plan's runs must be made, because no other run stands for them. */
size_t neap_estimate_count_own(const struct neap_estimate_plan *plan, const struct neap_estimate_run *runs);

void neap_estimate_run_fini(struct neap_estimate_run *run);

/* How a figure was found, the most certain first. */
enum neap_estimate_source {
	NEAP_ESTIMATE_COMPUTED,   /* from the code of the libraries that the program loaded */
	NEAP_ESTIMATE_DOCUMENTED, /* from NVIDIA's documentation, or from the library's source */
	NEAP_ESTIMATE_PUBLISHED,  /* somebody measured it on this GPU, or measured the library */
	NEAP_ESTIMATE_ASSUMED,
};

/* "computed", "documented", "published", "assumed". */
const char *neap_estimate_source_name(enum neap_estimate_source source);

#define NEAP_ESTIMATE_PARTS 12

/* How much memory a process takes in addition to PyTorch's allocator: the sum of its parts. */
struct neap_estimate_context {
	uint64_t low_bytes, high_bytes;
	struct neap_estimate_part {
		const char *name; /* as context.c lists them: "driver", "code" ... */
		uint64_t low_bytes, high_bytes;
		enum neap_estimate_source source;
	} parts[NEAP_ESTIMATE_PARTS]; /* those that are not 0 */
	size_t part_count;
};

/* Describes a part of the GPU's context, and where its figure comes from. */
void neap_estimate_part_text(const struct neap_estimate_plan *plan, size_t gpu, const struct neap_estimate_run *run,
			     const struct neap_estimate_part *part, char *ret_text, size_t capacity);

struct neap_estimate_context neap_estimate_context(const struct neap_estimate_plan *plan, size_t gpu,
						   const struct neap_estimate_run *run);

/* Returns how many other processes share the GPU of the process that reserved most. *ret_bytes: how much they
 * reserve; their contexts are not included. */
size_t neap_estimate_sharing(const struct neap_estimate_run *run, uint64_t *ret_bytes);

/* Returns the most that libraries' workspaces may add to the peaks of each process. PyTorch allocates a workspace,
 * but only the library knows its size. One workspace is in use at a time, so this is the largest of the known
 * bounds. */
uint64_t neap_estimate_workspace(const struct neap_estimate_run *run);

/* Whether some workspace has no known bound: cuDNN's for a convolution. */
bool neap_estimate_is_unbounded(const struct neap_estimate_run *run);

/* Finds whether the order of addresses changes the peak, from the run's torch, trace and reserved_peak. Errors: those
 * of replay. */
enum neap_status neap_estimate_find_orders(struct neap_estimate_run *run, struct neap_error *err);

/* Writes the interval of the reserved peak, and why it is an interval; "": there is one value only. */
void neap_estimate_orders_text(const struct neap_estimate_run *run, char *ret_text, size_t capacity);

/* Finds run->convolution in the trace. Errors: NEAP_ENOMEM. */
enum neap_status neap_estimate_find_convolution(struct neap_estimate_run *run, struct neap_error *err);

/* Writes that no bound is known for the workspaces of the run's convolutions, and how the user can bound them. */
void neap_estimate_convolution_text(const struct neap_estimate_run *run, char *ret_text, size_t capacity);

/* Whether the time limit ended the run before its second update (or forward pass): an optimizer makes its state in
 * the first one, so the memory from then on is not known. */
bool neap_estimate_is_cut_short(const struct neap_estimate_run *run);

/* Returns a process that was still growing when the run ended early: its last update took more memory than any
 * before. If the time limit or the bound on updates ended it, that may be any of the last three updates. Processes
 * with fewer than three updates do not count. NULL: there is none. */
const struct neap_estimate_process *neap_estimate_growing(const struct neap_estimate_run *run);

enum neap_estimate_fits { NEAP_ESTIMATE_NO, NEAP_ESTIMATE_UNSURE, NEAP_ESTIMATE_YES };

/* Why `fits` is UNSURE: the first reason that holds. */
enum neap_estimate_doubt {
	NEAP_ESTIMATE_SURE,
	NEAP_ESTIMATE_CONTEXT, /* it fits with the smallest context, but not with the largest */
	/* It fits with the largest context, but not with the libraries' largest workspaces as well. */
	NEAP_ESTIMATE_WORKSPACE,
	NEAP_ESTIMATE_ADDRESSES, /* it fits only if segments lie in some orders of addresses */
	NEAP_ESTIMATE_CUT_SHORT, /* it fits so far, but the time limit ended the run */
	NEAP_ESTIMATE_GROWING,   /* it fits so far, but the last update took more than earlier ones */
	NEAP_ESTIMATE_UNBOUNDED, /* it fits, unless cuDNN takes much more than usual for a convolution */
	NEAP_ESTIMATE_DOUBTS
};

/* "context", "workspace", "addresses", "time limit", "growing", "convolution"; "" for SURE. */
const char *neap_estimate_doubt_name(enum neap_estimate_doubt doubt);

struct neap_estimate_verdict {
	enum neap_estimate_fits fits;
	enum neap_estimate_doubt doubt; /* SURE unless `fits` is UNSURE */
	bool unsupported;               /* this PyTorch has no kernels for the architecture */
	struct neap_estimate_context context;
	/* The smallest memory in which the replay succeeds in every order of addresses. */
	uint64_t needed_bytes;
	/* The memory left after that, the largest contexts and the workspaces; below 0: missing. */
	int64_t headroom_bytes;
	uint64_t retries;             /* how often PyTorch emptied its cache to continue */
	struct neap_whatifs settings; /* the need with other settings; count 0: it fits, or the run was cut short */
	/* For a program that does not fit, predicted from the uses of memory at the peak: how much each change of
	 * training saves alone, and the share of the samples with which the program would fit (0: with none). */
	struct neap_saving savings[NEAP_SAVINGS];
	size_t saving_count;
	double samples_share;
};

/* Replays the run's trace in the GPU's memory. `progress` as in neap_replay_options. */
enum neap_status neap_estimate_judge(const struct neap_estimate_plan *plan, size_t gpu,
				     const struct neap_estimate_run *run,
				     bool (*progress)(void *context, uint64_t done, uint64_t total), void *context,
				     struct neap_estimate_verdict *ret_verdict, struct neap_error *err);

/* Returns how much the process that reserved most takes: its context, its reserved memory and workspaces. */
void neap_estimate_process_bytes(const struct neap_estimate_run *run, const struct neap_estimate_context *context,
				 uint64_t *ret_low_bytes, uint64_t *ret_high_bytes);

/* Returns how much all processes on one GPU take of it: their contexts and their reserved memory. */
void neap_estimate_device(const struct neap_estimate_run *run, const struct neap_estimate_context *context,
			  uint64_t *ret_low_bytes, uint64_t *ret_high_bytes);

/* The bytes of a category, however they were found. */
uint64_t neap_estimate_category_bytes(const struct neap_categories *categories, int category);

/* Writes the architecture of a profile: "sm_90". */
void neap_estimate_architecture(const struct sim_profile *profile, char text[16]);

#endif
