/* sim/driver/share.h: memory shared between processes of a world, for share.c, virtual.c and ipc.c.
 *
 *   process A: its file |  ... bytes of handle 7 ...  |  directory: entry of handle 7  |
 *                                    ^                            ^
 *   process B: --- maps them --------+     a descriptor of A's file, positioned there, or A's PID and the place
 *
 * A shared handle has an entry in the directory of the process whose file contains its bytes. Another process gets a
 * descriptor of that file; the descriptor's *position* selects the entry. The world records which processes hold a
 * share, and charges it once (world.h). An entry comes from another process: check it against the world and the file.
 */
#ifndef NEAP_SIM_SHARE_H
#define NEAP_SIM_SHARE_H

#include "sim/driver/state.h"

/* Makes the handle's memory a share, if it is not one yet, and returns the place of its entry in its process's file.
 * Lock held. Error: CUDA_ERROR_OUT_OF_MEMORY. */
CUresult sim_share_create(struct sim_handle *handle, uint64_t requested_bytes, uint64_t *ret_entry);
/* Calls the watcher of neap/sim.h. No lock held. */
void sim_share_report(const char *call, bool opened);
/* Finds the first part of the range that is in a share and that the host may read and write. Lock held. False: there
 * is none, or device memory has no bytes (backing=none). */
bool sim_share_find(uint64_t address, uint64_t bytes, uint64_t *ret_start, uint64_t *ret_bytes);
/* A new descriptor of the handle's file, at its entry. Lock held. -1: the host refused. */
int sim_share_open(struct sim_handle *handle);
/* Opens the share that a descriptor names; the handle is held once. Lock held. CUDA_ERROR_INVALID_VALUE: it names no
 * share of this world; CUDA_ERROR_INVALID_DEVICE: this process does not see its device. */
CUresult sim_share_import(int fd, struct sim_handle **ret_handle);

#endif
