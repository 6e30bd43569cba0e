/* torch/values_known.h: keeps which values are known, and decides which operations are worth computing (values=auto).
 *
 * A model of 7 billion parameters cannot compute on a host. Worth the time are: all cheap operations; integers,
 * booleans, indices and sizes; and the first second of each step. The values of an operation that is left out are
 * *missing*: their bytes are whatever lay there. Values computed from missing ones are *likely*: finite numbers of a
 * plausible size, never zeros that stop a loop.
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
#include <vector>

namespace neap_torch
{

enum class State : int { Known, Likely, Missing };

/* Sets whether operations may be left out to save time (values=auto), and how many bytes of host memory values may
 * take. A page of simulated device memory counts from the first write, copies from the host included, until the
 * program returns that memory to the driver. */
void known_start(bool may_leave_out, uint64_t most_bytes);
/* Call it once before each operation. Whether host memory may lack room for its results; then `known_has_room`
 * tells. */
bool known_is_short();
/* Makes the next `known_is_short` measure. */
void known_measure();
/* Whether these results, and the missing values among the arguments, fit into the host memory that values may take.
 * Small results, and results that replace other values, always do. */
bool known_has_room(const std::vector<at::Tensor> &read, const std::vector<at::Tensor> &written);
/* The bound, if results were left out because of it; 0: none were. */
uint64_t known_refused();
void known_refuse();
/* Whether states matter: something is, or may be, unknown. Cheap. */
bool known_matters();
/* The worst state of the bytes of a tensor: a device's, or one over a device's bytes (`host`). */
State known_state(const at::Tensor &tensor);
State known_state_of(uintptr_t begin, uintptr_t bytes);
/* `guess`: the probable values of missing whole numbers. If it is positive: below this number. */
constexpr int64_t kZeros = 1, kOnes = 0, kCounting = -1 /* 1, 2, 3... in each row */;
void known_mark(const at::Tensor &tensor, State state, int64_t guess = kZeros);
void known_mark_range(uintptr_t begin, uintptr_t bytes, State state, int64_t guess = kZeros);
int64_t known_guess(const at::Tensor &tensor);
/* The state of the bytes, perhaps many, that a collective would move; Missing: they are not worth moving. `exact`:
 * they are whole numbers. */
State known_to_move(uintptr_t begin, uintptr_t bytes, bool exact);
/* Makes missing bytes likely ones: the same place always gets the same bytes. */
void known_fill(const at::Tensor &tensor);

/* A step of the training begins: its time is available. */
void known_step();
/* Takes the time for one operation, in nanoseconds of a host's core. False: too little is left. */
bool known_take(double cost_ns);
/* Whether nothing is left out (values=full). */
bool known_is_whole();
/* Whether an operation costs so little that it is always computed. */
bool known_is_cheap(double cost_ns);

} // namespace neap_torch

#endif
