/* Memory shared between processes. A slot's bit among a share's holders stays until the slot is released, so that the
 * shares of a dead process drain like the rest of its memory. */
#include "sim/driver/world_layout.h"

#include <string.h>

#define WORD_BITS 64

static bool held_by(const struct share *share, int slot)
{
	return (share->holders[slot / WORD_BITS] >> (slot % WORD_BITS)) & 1;
}

static bool held_by_any(const struct share *share)
{
	for (size_t i = 0; i < SIM_SLOT_LIMIT / WORD_BITS; i++)
		if (share->holders[i])
			return true;
	return false;
}

int sim_world_share_slot(const struct share *share)
{
	if (share->owner < SIM_SLOT_LIMIT && held_by(share, (int)share->owner))
		return (int)share->owner;
	for (int i = 0; i < SIM_SLOT_LIMIT; i++)
		if (held_by(share, i))
			return i;
	return -1;
}

/* Returns a bound on the shares in use; does not trust share_end, which other processes write. */
static uint32_t end_of(const struct shared *shared)
{
	return shared->share_end < SIM_SHARE_LIMIT ? shared->share_end : SIM_SHARE_LIMIT;
}

void sim_world_shares_count(struct shared *shared)
{
	uint32_t i;

	memset(shared->shared_bytes, 0, sizeof shared->shared_bytes);
	for (i = 0; i < end_of(shared); i++) {
		struct share *share = &shared->shares[i];

		if (share->id && (share->device >= shared->device_count || !held_by_any(share)))
			share->id = 0;
		if (share->id)
			shared->shared_bytes[share->device] += share->bytes;
	}
}

bool sim_world_shares_held(const struct shared *shared, int slot)
{
	for (uint32_t i = 0; i < end_of(shared); i++)
		if (shared->shares[i].id && held_by(&shared->shares[i], slot))
			return true;
	return false;
}

/* Clears the slot's bit. True: no other slot holds the share. */
static bool leave(struct shared *shared, struct share *share, int slot)
{
	share->holders[slot / WORD_BITS] &= ~(1ull << (slot % WORD_BITS));
	if (held_by_any(share))
		return false;
	__atomic_store_n(&share->id, 0, __ATOMIC_RELEASE);
	if (share->device < SIM_DEVICE_LIMIT)
		shared->shared_bytes[share->device] -= share->bytes;
	while (shared->share_end > 0 && shared->shares[end_of(shared) - 1].id == 0)
		shared->share_end = end_of(shared) - 1;
	return true;
}

void sim_world_shares_release(struct shared *shared, int slot)
{
	for (uint32_t i = 0; i < end_of(shared); i++)
		if (shared->shares[i].id && held_by(&shared->shares[i], slot))
			(void)leave(shared, &shared->shares[i], slot);
}

/* -- holders ----------------------------------------------------------------------------------------------------- */

static struct share *find(struct shared *shared, uint64_t id)
{
	for (uint32_t i = 0; i < end_of(shared); i++)
		if (shared->shares[i].id == id && shared->shares[i].device < SIM_DEVICE_LIMIT)
			return &shared->shares[i];
	return NULL;
}

static struct share *find_free(struct shared *shared)
{
	struct share *share = find(shared, 0);

	if (!share && shared->share_end < SIM_SHARE_LIMIT)
		share = &shared->shares[shared->share_end++];
	return share;
}

/* Moves the charge from the slot to the share. If the process dies in between, the bytes are charged twice until they
 * have drained. */
enum neap_status sim_world_share(struct sim_world *world, uint32_t device, uint64_t bytes, uint64_t *ret_share)
{
	struct shared *shared = world->shared;
	struct share *share;

	if (sim_world_lock(world) != NEAP_OK)
		return NEAP_EIO;
	share = find_free(shared);
	if (share) {
		uint64_t *use = &shared->slots[world->own_slot].use[device][SIM_CHARGE_MEMORY];

		*share = (struct share){.bytes = bytes, .device = device, .owner = (uint32_t)world->own_slot};
		share->holders[world->own_slot / WORD_BITS] = 1ull << (world->own_slot % WORD_BITS);
		*ret_share = ++shared->share_ids;
		__atomic_store_n(&share->id, *ret_share, __ATOMIC_RELEASE);
		shared->shared_bytes[device] += bytes;
		*use = *use > bytes ? *use - bytes : 0;
	}
	sim_world_unlock(world);
	return share ? NEAP_OK : NEAP_ENOMEM;
}

enum neap_status sim_world_share_join(struct sim_world *world, uint64_t id, uint32_t *ret_device, uint64_t *ret_bytes)
{
	struct share *share;

	if (sim_world_lock(world) != NEAP_OK)
		return NEAP_EIO;
	sim_world_settle(world);
	share = id ? find(world->shared, id) : NULL;
	if (share) {
		share->holders[world->own_slot / WORD_BITS] |= 1ull << (world->own_slot % WORD_BITS);
		*ret_device = share->device;
		*ret_bytes = share->bytes;
	}
	sim_world_unlock(world);
	return share ? NEAP_OK : NEAP_ENOENT;
}

bool sim_world_share_leave(struct sim_world *world, uint64_t id)
{
	struct share *share;
	bool last = false;

	if (sim_world_lock(world) != NEAP_OK)
		return false;
	share = id ? find(world->shared, id) : NULL;
	if (share && held_by(share, world->own_slot))
		last = leave(world->shared, share, world->own_slot);
	sim_world_unlock(world);
	return last;
}
