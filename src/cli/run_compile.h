/* cli/run_compile.h: compiles, beside a run or after it, what a PyTorch program found not compiled.
 *
 *   program of a run --argv--> CACHE/neap/compile --`neap run`, at its start and at its end--> a process of its own
 *
 * A program must not wait for a compiler, nor have its processes as children; so it leaves the argv of what compiles
 * (python/neap/_compiled.py), NUL after each, and the next `neap run` starts it: this run's own at its end, too. */
#ifndef NEAP_CLI_RUN_COMPILE_H
#define NEAP_CLI_RUN_COMPILE_H

/* Starts what is to be compiled, with the lowest priority and without our descriptors, and does not wait for it. It is
 * no descendant of ours. Removes the file first, so that it is started once. Failures are ignored: the next program
 * asks again. */
void run_compile_start(void);

#endif
