/* Made-up samples: GPUs, processes, minutes of history. */
#ifndef NEAP_TESTS_TOP_SAMPLES_H
#define NEAP_TESTS_TOP_SAMPLES_H

#include "top/view.h"

#define S 1000000000ull

/* A sample of `devices` GPUs of 80 GiB at `seconds`: the driver reserves 2 GiB, and processes hold the rest in
 * use. */
struct neap_top_sample make_sample(size_t devices, uint64_t seconds);

/* Adds an attached process with this much allocated, as much cached again, and a context of 512 MiB. */
struct neap_top_process *add_attached(struct neap_top_sample *sample, pid_t pid, uint64_t devices,
				      uint64_t allocated);
/* Adds a process that is not attached. */
struct neap_top_process *add_other(struct neap_top_sample *sample, pid_t pid, uint64_t devices, uint64_t bytes);
/* Adds a process that holds nothing and started others. */
struct neap_top_process *add_launcher(struct neap_top_sample *sample, pid_t pid);
/* Fills in the ledgers, once all processes are there; each holds its bytes on the first of its devices. */
void sum_up(struct neap_top_sample *sample);

#endif
