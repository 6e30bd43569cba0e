/* cli/run_compile.h: compiles, beside a run or after it, what a PyTorch program found not compiled.
 *
 *   program of a run --argv--> CACHE/neap/compile --`neap run`, at its start and at its end--> a process of its own
 *
 * A program must not wait for a compiler, nor have its processes as children. So it leaves the argv of what compiles
 * (python/neap/_compiled.py), a NUL after each: the run's `neap run` starts it at the end, or the next one. */
#ifndef NEAP_CLI_RUN_COMPILE_H
#define NEAP_CLI_RUN_COMPILE_H

/* Starts what is to be compiled, with the lowest priority and without our descriptors, and does not wait for it. The
 * process is no descendant of ours. The file is removed first, so that it is started once. Failures are ignored: the
 * next program asks again. */
void run_compile_start(void);

#endif
