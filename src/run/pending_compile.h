/* run/pending_compile.h: compiles neap's own parts that a PyTorch program found uncompiled, during a run or after it.
 *
 *   program of a run --argv--> CACHE/neap/compile --`neap run`, at its start and at its end--> a process of its own
 *
 * A program must not wait for a compiler, nor have its processes as children. So it leaves the argv of the compiling
 * program (python/neap/_compiled.py), with a NUL after each argument. The `neap run` of this run starts that program
 * at the end, or the next `neap run` does at its start. */
#ifndef NEAP_RUN_PENDING_COMPILE_H
#define NEAP_RUN_PENDING_COMPILE_H

/* Starts the compilation that the file asks for, and does not wait for it. The process has the lowest priority and
 * none of our descriptors, and is not our descendant. Removes the file first, so that only one process starts the
 * program. Failures are ignored: the next program asks again. */
void neap_pending_compile_start(void);

#endif
