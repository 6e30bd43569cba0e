/* See the header. A block begins with its size. */
#include "charlm_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpu {
	struct host host;
	struct neap_error error;
};

enum { HEADER = 64 };

struct gpu *host_create(void)
{
	struct gpu *gpu = calloc(1, sizeof *gpu);

	if (gpu)
		gpu->host.allocations_left = -1;
	return gpu;
}

struct host *host_of(struct gpu *gpu) { return &gpu->host; }
void gpu_close(struct gpu *gpu) { free(gpu); }
bool gpu_failed(const struct gpu *gpu) { return gpu->error.status != NEAP_OK; }

enum neap_status gpu_take_error(struct gpu *gpu, struct neap_error *ret_error)
{
	struct neap_error error = gpu->error;

	gpu->error = (struct neap_error){0};
	if (error.status != NEAP_OK && ret_error)
		*ret_error = error;
	return error.status;
}

void *gpu_new(struct gpu *gpu, const char *tag, size_t bytes)
{
	unsigned char *block = NULL;

	if (gpu_failed(gpu))
		return NULL;
	if (gpu->host.allocations_left)
		block = malloc(HEADER + bytes);
	if (!block) {
		gpu->error.status = NEAP_EOOM;
		snprintf(gpu->error.message, sizeof gpu->error.message, "no memory for %s", tag);
		return NULL;
	}
	if (gpu->host.allocations_left > 0)
		gpu->host.allocations_left--;
	memcpy(block, &bytes, sizeof bytes);
	memset(block + HEADER, 0xFF, bytes); /* not a number: a read before the first write shows */
	gpu->host.live_blocks++;
	gpu->host.live_bytes += bytes;
	if (gpu->host.live_bytes > gpu->host.peak_bytes)
		gpu->host.peak_bytes = gpu->host.live_bytes;
	return block + HEADER;
}

void gpu_free(struct gpu *gpu, void *memory)
{
	size_t bytes;

	if (!memory)
		return;
	memcpy(&bytes, (unsigned char *)memory - HEADER, sizeof bytes);
	gpu->host.live_blocks--;
	gpu->host.live_bytes -= bytes;
	free((unsigned char *)memory - HEADER);
}

void gpu_launch(struct gpu *gpu, const struct gpu_work *work)
{
	max_align_t arguments[16];

	if (gpu_failed(gpu))
		return;
	memcpy(arguments, work->arguments, work->argument_bytes);
	work->function(arguments);
}

void gpu_write(struct gpu *gpu, void *memory, const void *host, size_t bytes)
{
	if (!gpu_failed(gpu))
		memcpy(memory, host, bytes);
}

void gpu_read(struct gpu *gpu, void *host, const void *memory, size_t bytes)
{
	if (!gpu_failed(gpu))
		memcpy(host, memory, bytes);
}
