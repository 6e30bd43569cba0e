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
#include <vector>

namespace neap_torch
{

enum class State : int { Known, Likely, Missing };

/* Sets whether anything may be left out for want of time (values=auto), and how many bytes of host memory values may
 * take: the pages of the simulated devices' memory that were written, by copies from the host too, until the program
 * returns that memory to the driver. */
void known_start(bool may_leave_out, uint64_t most_bytes);
/* To be called once before each operation. Whether its results may have no room in host memory; then `known_has_room`
 * says whether they do. */
bool known_is_short();
/* The next `known_is_short` measures. */
void known_measure();
/* Whether these results fit into the host memory that values may take, with what was missing of that which is read.
 * Small ones and those that replace others always do. */
bool known_has_room(const std::vector<at::Tensor> &read, const std::vector<at::Tensor> &written);
/* The bound, once results were left out because of it; 0: none was. */
uint64_t known_refused();
void known_refuse();
/* Whether states matter: something is, or may be, unknown. Cheap. */
bool known_matters();
/* The worst state of the tensor's bytes: of a device's, or of those over them (`host`). */
State known_state(const at::Tensor &tensor);
State known_state_of(uintptr_t begin, uintptr_t bytes);
/* `guess`: what whole numbers that are missing probably are: below this number, if it is positive. */
constexpr int64_t kZeros = 1, kOnes = 0, kCounting = -1 /* 1, 2, 3... in each row */;
void known_mark(const at::Tensor &tensor, State state, int64_t guess = kZeros);
void known_mark_range(uintptr_t begin, uintptr_t bytes, State state, int64_t guess = kZeros);
int64_t known_guess(const at::Tensor &tensor);
/* What is known of bytes that a collective would move, much of them; Missing: they are not worth it. `exact`: whole
 * numbers. */
State known_to_move(uintptr_t begin, uintptr_t bytes, bool exact);
/* Missing bytes become likely ones: the same for the same place each time. */
void known_fill(const at::Tensor &tensor);

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
