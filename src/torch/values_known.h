/* torch/values_known.h: which values are known, and which operations are worth computing (values=auto).
 *
 * A model of 7 billion parameters cannot compute on a host. What is worth its time is: everything that is cheap;
 * integers, booleans, indices and sizes; and the first second of each step. What is left out is *missing*: its bytes
 * are whatever lay there. What is computed from missing values is *likely*: finite numbers of a plausible size, never
 * zeros that stop a loop.
 *
 *   known ──an operation that is left out──> missing ──read by one that is computed──> likely ──> likely
 *
 * Decisions go by sizes and counts, never by a clock: a program of one thread takes the same ones in every run, as
 * long as the host has memory.
 *
 * Threads: any; one lock.
 */
#ifndef NEAP_TORCH_VALUES_KNOWN_H
#define NEAP_TORCH_VALUES_KNOWN_H

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace neap_torch
{

enum class State : int { Known, Likely, Missing };

/* Sets whether anything may be left out (values=auto), and how many bytes of host memory values may take. */
void known_start(bool may_leave_out, uint64_t most_bytes);
/* Whether states matter: something is, or may be, unknown. Cheap. */
bool known_matters();
/* The worst state of the tensor's bytes: of a device's, or of those over them (`host`). */
State known_state(const at::Tensor &tensor);
State known_state_of(uintptr_t begin, uintptr_t bytes);
void known_mark(const at::Tensor &tensor, State state);
/* Missing bytes become likely ones: the same for the same place each time. */
void known_fill(const at::Tensor &tensor);
/* Whole numbers in [0, values) for a tensor that is missing: they are likely from now on. */
void known_guess(const at::Tensor &tensor, int64_t values);

/* A step of the training begins: there is time again. */
void known_step();
/* Takes the time for one operation, in nanoseconds of a host's core. False: there is not so much left. */
bool known_take(double cost_ns);
/* Whether nothing is left out (values=full). */
bool known_is_whole();
/* Costs next to nothing: such an operation is always computed. */
bool known_is_cheap(double cost_ns);

} // namespace neap_torch

#endif
