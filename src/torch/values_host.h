/* torch/values_host.h: lends memory to the program's own tensors, on the host, once they are larger than its memory.
 *
 * A program that builds 70 billion parameters on the host and moves them to its devices takes 140 GB or more before
 * it computes anything. Up to a bound nothing changes. Beyond it, large tensors of floating-point numbers get *lent*
 * memory: addresses that all show the same bytes.
 *
 *   addresses  |--- window ---|--- window ---|--- window ---|---     a storage takes as many of them as it asks for
 *                     \______________|______________/
 *                                 64 MiB                             finite numbers above 0
 *
 * Every operation on such a tensor works, and takes no more memory. A read does not give what was written, so the
 * values are missing ones (values_known.h), also on a device to which they are copied. An operation that only writes
 * lent memory, such as an initialiser or a copy, is left out.
 *
 * Decisions go by sizes and counts. Threads: any.
 */
#ifndef NEAP_TORCH_VALUES_HOST_H
#define NEAP_TORCH_VALUES_HOST_H

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>

namespace neap_torch
{

/* The addresses of the simulator's devices. Lent memory has its addresses above them. */
constexpr uintptr_t kDevicesBegin = 2ull << 44;
constexpr uintptr_t kLentBegin = 5ull << 44, kLentEnd = kLentBegin + (4ull << 40);

inline bool host_is_lent(uintptr_t address) { return address >= kLentBegin && address < kLentEnd; }

/* From now on calls races_new_pinned for each new pinned tensor. */
void host_watch();
/* From now on a large tensor gets lent memory if otherwise the process's own large tensors and its devices' values
 * would take more than this. Call it once. */
void host_start(uint64_t most_bytes);
/* Whether anything was lent so far. Cheap. */
bool host_lends();
/* How much memory the process's own large tensors take; 0 until memory is first lent. */
uint64_t host_taken();
/* The most that was lent at one time. */
uint64_t host_lent();

/* Whether an operation only writes its first argument and keeps the argument's size: it overwrites it (`overwrites`),
 * or works element by element. */
bool host_is_writer(const c10::OperatorHandle &op, bool overwrites);
/* `op`, which is a writer, on tensors of the host. True: it writes lent memory, and was left out. Then its result is
 * on the stack, and the generator that it would have drawn from has advanced as if it had. Throws the errors that it
 * would have thrown for sizes and types. */
bool host_leaves_out(const c10::OperatorHandle &op, torch::jit::Stack *stack, size_t begin);

} // namespace neap_torch

#endif
