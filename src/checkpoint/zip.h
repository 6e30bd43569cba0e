/* checkpoint/zip.h: finds members of a zip archive as torch.save writes it: stored, not compressed. Reads only; one
 * thread. */
#ifndef NEAP_CHECKPOINT_ZIP_H
#define NEAP_CHECKPOINT_ZIP_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>

/* The list of members; a zeroed struct is none. */
struct checkpoint_zip {
	int fd; /* the caller's */
	uint64_t size;
	unsigned char *list;
	size_t list_length;
};

/* Finds where the list of members is. False: the file does not end like an archive. `ret_begin` and `ret_length` may
 * be NULL. */
bool checkpoint_zip_end(int fd, uint64_t size, uint64_t *ret_begin, uint64_t *ret_length);

/* Reads the list of members (64 MiB at most). False: it is not an archive, is damaged, or cannot be read. The caller
 * calls checkpoint_zip_fini. */
bool checkpoint_zip_open(int fd, struct checkpoint_zip *ret_zip);
void checkpoint_zip_fini(struct checkpoint_zip *zip);

/* Finds the bytes of the member whose name is END or ends with "/END". False: there is none, or it is compressed. */
bool checkpoint_zip_find(const struct checkpoint_zip *zip, const char *end, uint64_t *ret_begin,
			 uint64_t *ret_length);

/* Reads that member into new memory, which the caller frees; *ret_bytes: NULL if there is none of at most `most`
 * bytes, or it cannot be read. False: the host is out of memory. */
bool checkpoint_zip_read(const struct checkpoint_zip *zip, const char *end, size_t most, void **ret_bytes,
			 size_t *ret_length);

/* Reads `length` bytes of a file from `at` on. False: they are not all there. */
bool checkpoint_read_at(int fd, void *bytes, size_t length, uint64_t at);

#endif
