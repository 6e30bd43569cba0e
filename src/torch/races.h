/* torch/races.h: tells the simulator what each operation uses, and what PyTorch's allocator does, so that it
 * finds memory that is used too late (struct neap_sim_races of neap/sim.h, which knows nothing of PyTorch).
 *
 *   operations (values.cpp) --races_work--> what they read and write, on their devices' current streams
 *   allocator --trace tracker--> blocks                                   NCCL, copies --the stand-ins themselves
 *                                        found --> RUN/races.PID, a line of JSON each; places --> RUN/places.PID
 *
 * Places are numbers of Python's stacks (watch_stacks.h). A thread of autograd's has no frames of Python's: its
 * place is that of the backward pass that runs. Threads: any. */
#ifndef NEAP_TORCH_RACES_H
#define NEAP_TORCH_RACES_H

#include "neap/sim.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace neap_torch
{

/* Ranges that one operation uses, by device. */
struct RacesTouches {
	std::vector<neap_sim_touch> touches;
	std::vector<int> devices; /* of each touch; kRacesHost: of the operation's first one */
	void clear();
};

constexpr int kRacesHost = -1;

/* Whether anything is told at all. Cheap. */
bool races_on();
/* Whether a device has used pinned memory so far: else the host's own uses cannot matter. */
bool races_pinned();
/* Adds a plain tensor's bytes: `use` as in enum neap_sim_use. One of the host only if it is pinned. */
void races_add(RacesTouches *touches, const at::Tensor &tensor, uint32_t use);
/* A name that stays, for reports: an operation may go with its library. */
const char *races_name(const std::string &name);
/* Work on the current streams of these devices. `name` stays. */
void races_work(const char *name, const RacesTouches &touches);
/* The host uses this tensor of the host, now; or got it just now from an allocator of pinned memory. */
void races_host(const char *name, const at::Tensor &tensor, uint32_t use);
void races_fresh(const at::Tensor &tensor);
/* Whether values come late. */
bool races_are_late();
/* Whether this tensor of the host lies in memory that devices reach. */
bool races_is_pinned(const at::Tensor &tensor);
/* `function` computes values of this device's current stream when something waits for them. */
void races_later(int device, void (*function)(void *), void *argument);
/* What comes before the next work of these devices' current streams is computed now. */
void races_settle(const std::vector<int> &devices);
/* It failed an assertion of the device. */
void races_fail();
/* Something on the devices is not seen: told once for each name. */
void races_not_seen(const char *name);

} // namespace neap_torch

#endif
