/* run/pending_compile.h: compiles, beside a run or after it, what a PyTorch program found not compiled.
 *
 *   program of a run --argv--> CACHE/neap/compile --`neap run`, at its start and at its end--> a process of its own
 *
 * A program must not wait for a compiler, nor have its processes as children. So it leaves the argv of what compiles
 * (python/neap/_compiled.py), a NUL after each: the run's `neap run` starts it at the end, or the next one. */
#ifndef NEAP_RUN_PENDING_COMPILE_H
#define NEAP_RUN_PENDING_COMPILE_H

/* Starts the compilation that the file asks for, and does not wait for it. The process has the lowest priority, none
 * of our descriptors, and is no descendant of ours. The file is removed first, so that the program is started
 * once. Failures are ignored: the next program asks again. */
void neap_pending_compile_start(void);

#endif
