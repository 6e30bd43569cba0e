/* torch/races.h: tells the simulator which memory each operation uses, and what PyTorch's allocator does. So the
 * simulator, which knows nothing about PyTorch, finds races between streams (struct neap_sim_races of neap/sim.h).
 *
 *   operations (values.cpp) --races_work--> what they read and write, on their devices' current streams
 *   allocator --trace tracker--> blocks                                   NCCL, copies --the stand-ins themselves
 *                                        found --> RUN/races.PID, a line of JSON each; places --> RUN/places.PID
 *
 * Places are numbers of Python's stacks (watch_stacks.h). A thread of autograd has no Python frames: its place is
 * that of the running backward pass. Threads: any. */
#ifndef NEAP_TORCH_RACES_H
#define NEAP_TORCH_RACES_H

#include "neap/sim.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace neap_torch
{

/* The ranges that one operation uses, and their devices. */
struct RacesTouches {
	std::vector<neap_sim_touch> touches;
	std::vector<int> devices; /* of each touch; kRacesHost: of the operation's first one */
	void clear();
};

constexpr int kRacesHost = -1;

/* Whether races are watched at all. Cheap. */
bool races_on();
/* Whether a device has used pinned memory so far. Until then the host's own uses cannot matter. */
bool races_pinned();
/* Adds a plain tensor's bytes: `use` as in enum neap_sim_use. A host tensor is added only if it is pinned. */
void races_add(RacesTouches *touches, const at::Tensor &tensor, uint32_t use);
/* A copy of the name that stays for the reports: an operation may vanish with its library. */
const char *races_name(const std::string &name);
/* Work on the current streams of these devices. `name` stays. */
void races_work(const char *name, const RacesTouches &touches);
/* The host uses this host tensor now. */
void races_host(const char *name, const at::Tensor &tensor, uint32_t use);
/* Whether values come late. */
bool races_are_late();
/* Whether this host tensor lies in memory that devices can reach. */
bool races_is_pinned(const at::Tensor &tensor);
/* A new tensor of the host. If it is pinned, PyTorch's allocator has waited for the earlier work on its bytes. */
void races_new_pinned(const at::Tensor &tensor);
/* When something waits for this device's current stream, `function` is called to compute values. */
void races_later(int device, void (*function)(void *), void *argument);
/* Computes now all values that come before the next work of these devices' current streams. */
void races_settle(const std::vector<int> &devices);
/* A late computation failed an assertion of the device. */
void races_fail();
/* Some work on the devices is not seen: reports it once for each name. */
void races_not_seen(const char *name);

} // namespace neap_torch

#endif
