/* sim/driver/share.c: see the header. */
#include "sim/driver/share.h"

#include "base/descriptor.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRY_MAGIC     0x7261687370616e65ull /* "enapshar" */
#define DIRECTORY_BYTES SIM_PAGE_BYTES

struct entry {
	uint64_t magic;
	uint64_t share; /* of the world */
	uint64_t file_offset, bytes, requested_bytes;
	unsigned char uuid[16]; /* the UUID of the device, which also identifies the world */
	uint64_t pad;
};

/* This process's part of a share. */
struct sim_share {
	struct sim_share *next;
	uint64_t id, space, entry, bytes;
	uint32_t device;
	uint32_t references; /* how many handles refer to it */
};

/* -- files ------------------------------------------------------------------------------------------------------- */

void sim_file_release(struct sim_file *file)
{
	struct sim_file **link = &sim.shared_files;

	if (!file || --file->references > 0)
		return;
	while (*link != file)
		link = &(*link)->next;
	*link = file->next;
	close(file->fd);
	free(file);
}

static bool own_file(const struct stat *info)
{
	struct stat own;

	return sim.file >= 0 && fstat(sim.file, &own) == 0 && own.st_dev == info->st_dev &&
	       own.st_ino == info->st_ino;
}

/* Keeps the descriptor's file open and returns it; returns NULL for this process's own file. False: host out of
 * memory or descriptors. */
static bool file_retain(int fd, const struct stat *info, struct sim_file **ret_file)
{
	struct sim_file *file;

	*ret_file = NULL;
	if (own_file(info))
		return true;
	for (file = sim.shared_files; file; file = file->next)
		if (file->device == info->st_dev && file->inode == info->st_ino)
			break;
	if (file) {
		file->references++;
		*ret_file = file;
		return true;
	}
	file = malloc(sizeof *file);
	if (!file)
		return false;
	*file = (struct sim_file){.next = sim.shared_files,
				  .device = info->st_dev,
				  .inode = info->st_ino,
				  .fd = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1),
				  .references = 1};
	if (file->fd < 0) {
		free(file);
		return false;
	}
	sim.shared_files = *ret_file = file;
	return true;
}

/* -- shares ------------------------------------------------------------------------------------------------------ */

static struct sim_share *share_create(uint64_t id, uint64_t space, uint64_t entry, uint32_t device, uint64_t bytes)
{
	struct sim_share *share = malloc(sizeof *share);

	if (!share)
		return NULL;
	*share = (struct sim_share){.next = sim.shares,
				    .id = id,
				    .space = space,
				    .entry = entry,
				    .bytes = bytes,
				    .device = device,
				    .references = 1};
	sim.shares = share;
	return share;
}

/* Finds a free place for an entry in this process's directory. */
static bool entry_place(uint64_t *ret_entry)
{
	if (sim.directory == sim.directory_end) {
		if (!sim_physical_extend(DIRECTORY_BYTES, &sim.directory))
			return false;
		sim.directory_end = sim.directory + DIRECTORY_BYTES;
	}
	*ret_entry = sim.directory;
	return true;
}

CUresult sim_share_create(struct sim_handle *handle, uint64_t requested_bytes, uint64_t *ret_entry)
{
	const struct sim_device *device = &sim.devices[handle->device];
	struct entry entry = {.magic = ENTRY_MAGIC,
			      .file_offset = handle->file_offset,
			      .bytes = handle->bytes,
			      .requested_bytes = requested_bytes};
	uint64_t place;

	if (handle->share) {
		*ret_entry = handle->share->entry;
		return CUDA_SUCCESS;
	}
	if (!sim.world)
		return CUDA_ERROR_DEINITIALIZED;
	memcpy(entry.uuid, device->view.uuid, sizeof entry.uuid);
	if (!entry_place(&place))
		return CUDA_ERROR_OUT_OF_MEMORY;
	handle->share = share_create(0, handle->space, place, handle->device, handle->bytes);
	if (!handle->share)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (sim_world_share(sim.world, device->index, handle->bytes, &handle->share->id) != NEAP_OK) {
		sim.shares = handle->share->next;
		free(handle->share);
		handle->share = NULL;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	entry.share = handle->share->id;
	if (pwrite(sim.file, &entry, sizeof entry, (off_t)place) != sizeof entry)
		return CUDA_ERROR_OPERATING_SYSTEM;
	sim.directory += sizeof entry;
	*ret_entry = place;
	return CUDA_SUCCESS;
}

bool sim_share_leave(const struct sim_handle *handle)
{
	struct sim_share *share = handle->share, **link = &sim.shares;
	bool last;

	if (--share->references > 0)
		return false;
	while (*link != share)
		link = &(*link)->next;
	*link = share->next;
	sim_engine_forget(sim.engine, share->space);
	last = sim.world && sim_world_share_leave(sim.world, share->id);
	free(share);
	return last;
}

int sim_share_open(struct sim_handle *handle)
{
	char path[64];
	int fd;

	snprintf(path, sizeof path, "/proc/self/fd/%d", sim_physical_file(handle));
	fd = neap_fd_above_standard(open(path, O_RDWR | O_CLOEXEC));
	if (fd >= 0 && lseek(fd, (off_t)handle->share->entry, SEEK_SET) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

void sim_share_report(const char *call, bool opened)
{
	void (*function)(const char *, int) = atomic_load(&sim.share_watch);

	if (function)
		function(call, opened);
}

static struct sim_range *first_mapping(uint64_t start, uint64_t bytes)
{
	struct sim_range *range = sim_ranges_find(&sim.mappings, start, bytes), *earlier;

	while (range && range->start > start &&
	       (earlier = sim_ranges_find(&sim.mappings, start, range->start - start)) != NULL)
		range = earlier;
	return range;
}

bool sim_share_find(uint64_t address, uint64_t bytes, uint64_t *ret_start, uint64_t *ret_bytes)
{
	uint64_t at = address, end = address + bytes;
	const struct sim_mapping *mapping;

	while (!sim.spec.no_backing && at < end &&
	       (mapping = (const struct sim_mapping *)first_mapping(at, end - at)) != NULL) {
		uint64_t stop = mapping->range.start + mapping->range.bytes;

		if (mapping->range.start > at)
			at = mapping->range.start;
		if ((mapping->handle->share || sim.values) &&
		    sim_map_widest(mapping) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
			*ret_start = at;
			*ret_bytes = (stop < end ? stop : end) - at;
			return true;
		}
		at = stop;
	}
	return false;
}

/* -- import ------------------------------------------------------------------------------------------------------ */

static bool aligned(uint64_t value) { return value % SIM_PAGE_BYTES == 0; }

/* The entry that the descriptor's position names; not checked yet. */
static bool read_entry(int fd, const struct stat *info, struct entry *ret_entry, uint64_t *ret_place)
{
	off_t place = lseek(fd, 0, SEEK_CUR);
	struct entry entry;

	if (place <= 0 || !S_ISREG(info->st_mode) ||
	    pread(fd, &entry, sizeof entry, place) != (ssize_t)sizeof entry || entry.magic != ENTRY_MAGIC ||
	    entry.bytes == 0 || entry.bytes > SIM_MEMORY_LIMIT || !aligned(entry.bytes) ||
	    !aligned(entry.file_offset) || entry.requested_bytes > entry.bytes)
		return false;
	if (!sim.spec.no_backing && (entry.file_offset > (uint64_t)info->st_size ||
				     entry.bytes > (uint64_t)info->st_size - entry.file_offset))
		return false;
	*ret_entry = entry;
	*ret_place = (uint64_t)place;
	return true;
}

static bool find_device(const unsigned char uuid[16], uint32_t *ret_device)
{
	for (uint32_t i = 0; i < sim.device_count; i++)
		if (memcmp(sim.devices[i].view.uuid, uuid, 16) == 0) {
			*ret_device = i;
			return true;
		}
	return false;
}

/* Makes this process a holder, if the world's share agrees with the entry. */
static struct sim_share *share_join(const struct entry *entry, uint64_t place, uint32_t device)
{
	struct sim_share *share = sim.shares;
	uint64_t bytes = 0;
	uint32_t index = 0;

	while (share && share->id != entry->share)
		share = share->next;
	if (share && (share->device != device || share->bytes != entry->bytes))
		return NULL;
	if (share) {
		share->references++;
		return share;
	}
	if (!sim.world || sim_world_share_join(sim.world, entry->share, &index, &bytes) != NEAP_OK)
		return NULL;
	if (index == sim.devices[device].index && bytes == entry->bytes)
		share = share_create(entry->share, ++sim.next_id, place, device, bytes);
	if (!share)
		(void)sim_world_share_leave(sim.world, entry->share);
	return share;
}

CUresult sim_share_import(int fd, struct sim_handle **ret_handle)
{
	struct sim_handle *handle;
	struct entry entry;
	struct stat info;
	uint32_t device;
	uint64_t place;

	if (fstat(fd, &info) != 0 || !read_entry(fd, &info, &entry, &place))
		return CUDA_ERROR_INVALID_VALUE;
	if (!find_device(entry.uuid, &device))
		return CUDA_ERROR_INVALID_DEVICE;
	handle = calloc(1, sizeof *handle);
	if (!handle)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*handle = (struct sim_handle){.id = ++sim.next_id,
				      .bytes = entry.bytes,
				      .file_offset = entry.file_offset,
				      .requested_bytes = entry.requested_bytes,
				      .device = device,
				      .held = 1};
	if (!neap_map_put(&sim.handles, handle->id, (uint64_t)(uintptr_t)handle)) {
		free(handle);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!file_retain(fd, &info, &handle->file)) {
		neap_map_remove(&sim.handles, handle->id, NULL);
		free(handle);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	handle->share = share_join(&entry, place, device);
	if (!handle->share) {
		sim_file_release(handle->file);
		neap_map_remove(&sim.handles, handle->id, NULL);
		free(handle);
		return CUDA_ERROR_INVALID_VALUE;
	}
	handle->space = handle->share->space;
	*ret_handle = handle;
	return CUDA_SUCCESS;
}
