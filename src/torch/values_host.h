/* torch/values_host.h: the program's own tensors, on the host, once they are larger than its memory.
 *
 * A program that builds 70 billion parameters on the host and moves them to its devices takes 140 GB or more before
 * it computes anything. Up to a bound nothing changes. Beyond it, large tensors of floating-point numbers get *lent*
 * memory: addresses that all show the same bytes.
 *
 *   addresses  |--- window ---|--- window ---|--- window ---|---     a storage takes as many of them as it asks for
 *                     \______________|______________/
 *                                 64 MiB                             finite numbers above 0
 *
 * Every operation on such a tensor works, and takes no more memory. What was written is not what is read, so its
 * values are missing ones (values_known.h), on a device too once they are copied there. An operation that does
 * nothing but write lent memory, such as an initialiser or a copy, is left out.
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

/* The addresses of the simulator's devices. Above them: those of lent memory. */
constexpr uintptr_t kDevicesBegin = 2ull << 44;
constexpr uintptr_t kLentBegin = 5ull << 44, kLentEnd = kLentBegin + (4ull << 40);

inline bool host_is_lent(uintptr_t address) { return address >= kLentBegin && address < kLentEnd; }

/* From now on memory is lent where a large tensor would make the process's own large tensors, and the values of its
 * devices, take more than this. To be called once. */
void host_start(uint64_t most_bytes);
/* Whether anything was lent so far. Cheap. */
bool host_lends();
/* What the process's own large tensors take, once memory was lent; before, 0. */
uint64_t host_taken();
/* The most that was lent at one time. */
uint64_t host_lent();

/* Whether an operation only writes its first argument, and keeps its size: it overwrites it (`overwrites`), or works
 * element by element. */
bool host_is_writer(const c10::OperatorHandle &op, bool overwrites);
/* `op`, which is a writer, on tensors of the host. True: what it writes is lent, and it was left out. Its result is
 * on the stack, and a generator that it draws from goes on as if it had. Throws what it would have thrown for sizes
 * and types. */
bool host_leaves_out(const c10::OperatorHandle &op, torch::jit::Stack *stack, size_t begin);

} // namespace neap_torch

#endif
