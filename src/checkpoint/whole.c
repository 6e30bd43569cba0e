/* checkpoint/whole.c: see the header. Formats: zip.c; the README of safetensors, section "Format"; Orbax and
 * torch.distributed.checkpoint as their versions 0.12 and 2.15 write them. */
#include "checkpoint/whole.h"

#include "checkpoint/listing.h"
#include "checkpoint/name.h"
#include "checkpoint/sidecar.h"
#include "checkpoint/zip.h"

#include "base/buffer.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MOST    (100 * 1000 * 1000) /* safetensors allows no more */
#define HEADER_READ    (16 * 1024 * 1024)  /* a longer header is not checked */
#define METADATA_BYTES 65536
#define LOOKS_MOST     4096 /* files of one folder */
#define DEPTH_MOST     3

const char checkpoint_parts_missing[] = "not all of its parts are there";

static bool has_extension(const char *name, const char *extension)
{
	size_t length = strlen(name), wanted = strlen(extension);

	return length > wanted && !strcasecmp(name + length - wanted, extension);
}

/* --- safetensors --- */

/* The largest end of a tensor in a header: "data_offsets":[BEGIN,END]. */
static uint64_t tensors_end(const char *header)
{
	static const char key[] = "\"data_offsets\"";
	uint64_t most = 0;

	for (const char *at = header; (at = strstr(at, key)); at += sizeof key - 1) {
		const char *end = at + sizeof key - 1;
		if (at > header && at[-1] == '\\')
			continue; /* within a text */
		end += strspn(end, " :[");
		end += strspn(end, "0123456789");
		end += strspn(end, " ,");
		size_t digits = strspn(end, "0123456789");
		uint64_t value = digits > 0 && digits <= 18 ? strtoull(end, NULL, 10) : 0;
		most = value > most ? value : most;
	}
	return most;
}

static const char *safetensors_torn(int fd, uint64_t size)
{
	static const char why[] = "it is shorter than its header says";
	uint64_t length;

	if (size < sizeof length)
		return why;
	if (!checkpoint_read_at(fd, &length, sizeof length, 0))
		return NULL;
	length = le64toh(length);
	if (length < 2 || length > HEADER_MOST)
		return "its header is damaged";
	if (size - sizeof length < length)
		return why;
	if (length > HEADER_READ)
		return NULL;
	char *header = malloc(length + 1);
	if (!header || !checkpoint_read_at(fd, header, length, sizeof length)) {
		free(header);
		return NULL;
	}
	header[length] = '\0';
	const char *torn = header[0] != '{'                                      ? "its header is damaged"
			   : tensors_end(header) > size - sizeof length - length ? why
										 : NULL;
	free(header);
	return torn;
}

/* --- files --- */

const char *checkpoint_file_torn(int fd, const char *name)
{
	unsigned char magic[4];
	struct stat info;

	if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode))
		return NULL;
	if (info.st_size == 0)
		return "it is empty";
	if (!checkpoint_read_at(fd, magic, 1, (uint64_t)info.st_size - 1))
		return NULL; /* a file that cannot be read is not torn */
	if (has_extension(name, ".safetensors"))
		return safetensors_torn(fd, (uint64_t)info.st_size);
	if (info.st_size >= 4 && checkpoint_read_at(fd, magic, sizeof magic, 0) && !memcmp(magic, "PK\3\4", 4))
		return checkpoint_zip_end(fd, (uint64_t)info.st_size, NULL, NULL) ? NULL
										  : "its zip archive has no end";
	return NULL;
}

static const char *named_torn(int folder_fd, const char *name)
{
	int fd = openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	const char *torn = fd < 0 ? NULL : checkpoint_file_torn(fd, name);

	if (fd >= 0)
		close(fd);
	return torn;
}

/* --- Orbax --- */

static void take_commit(void *context, const char *word, unsigned depth, double value)
{
	if (depth == 1 && !strcmp(word, "commit_timestamp_nsecs") && value > 0)
		*(bool *)context = true;
}

static bool has(int fd, const char *name) { return faccessat(fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0; }

static const char *orbax_torn(int folder_fd)
{
	struct neap_buffer text = {0};
	bool committed = has(folder_fd, "commit_success.txt");
	struct checkpoint_sidecar_visitor visitor = {.number = take_commit, .context = &committed};
	const char *torn = NULL;
	int cause;

	if (committed)
		return NULL;
	if (checkpoint_text_read(folder_fd, "_CHECKPOINT_METADATA", METADATA_BYTES, &text, &cause)) {
		const char *string = neap_buffer_string(&text);
		bool fine = checkpoint_json_scan(string, text.length, &visitor, NULL) == NEAP_OK;
		/* the time is null until Orbax commits; old versions never write it */
		if (!fine || (!committed && strstr(string, "\"commit_timestamp_nsecs\"")))
			torn = "Orbax has not committed it";
	}
	neap_buffer_fini(&text);
	return torn;
}

/* --- sets of parts --- */

bool checkpoint_sets_count(struct checkpoint_sets *sets, const struct checkpoint_role *role)
{
	uint64_t there = 0;

	if (!role->set)
		return true;
	neap_map_get(&sets->there, role->set, &there);
	return neap_map_put(&sets->there, role->set, there + 1) && neap_map_put(&sets->wanted, role->set, role->of);
}

bool checkpoint_sets_miss(const struct checkpoint_sets *sets)
{
	const struct neap_map_slot *slot;
	size_t cursor = 0;

	while ((slot = neap_map_next(&sets->wanted, &cursor))) {
		uint64_t there = 0;

		neap_map_get(&sets->there, slot->key, &there);
		if (there < slot->value)
			return true;
	}
	return false;
}

void checkpoint_sets_fini(struct checkpoint_sets *sets)
{
	neap_map_fini(&sets->there);
	neap_map_fini(&sets->wanted);
}

/* --- folders --- */

struct search {
	const char *torn;
	size_t looks;
	bool any; /* it holds something */
};

static void inspect_folder(struct search *search, int parent, const char *name, unsigned depth);

/* Whether a file of a folder has tensors. Orbax's marker orbax.checkpoint has none: it is empty. */
static bool holds_tensors(const char *name)
{
	static const char *const extensions[] = {".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".distcp", ".npz"};

	for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++)
		if (has_extension(name, extensions[i]))
			return true;
	return false;
}

/* Checks one name in a folder. */
static void inspect_file(struct search *search, int fd, const char *name, unsigned char type, unsigned depth)
{
	struct stat info;

	search->any = true;
	if (type == DT_UNKNOWN && fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0)
		type = IFTODT(info.st_mode);
	if (type == DT_DIR && depth < DEPTH_MOST)
		inspect_folder(search, fd, name, depth + 1);
	else if (type == DT_REG && holds_tensors(name))
		search->torn = named_torn(fd, name);
}

static void inspect_folder(struct search *search, int parent, const char *name, unsigned depth)
{
	struct checkpoint_listing names = {0};
	struct checkpoint_sets sets = {0};
	struct checkpoint_role role;
	bool distributed = false, listed = false, marked = false;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return;
	listed = checkpoint_listing_read(fd, &names, NULL) == NEAP_OK;
	for (size_t i = 0; listed && !search->torn && i < names.count && search->looks < LOOKS_MOST;
	     i++, search->looks++) {
		inspect_file(search, fd, names.names[i], names.types[i], depth);
		distributed |= has_extension(names.names[i], ".distcp");
		marked |= !strcmp(names.names[i], ".metadata");
		checkpoint_role_read(names.names[i], &role);
		if (holds_tensors(names.names[i]) && !checkpoint_sets_count(&sets, &role))
			break;
	}
	if (listed && !search->torn && search->looks < LOOKS_MOST) {
		search->torn = checkpoint_sets_miss(&sets)  ? checkpoint_parts_missing
			       : distributed && !marked     ? "its .metadata, which is written last, is missing"
			       : !search->any && depth == 0 ? "it is empty"
							    : orbax_torn(fd);
	}
	checkpoint_sets_fini(&sets);
	checkpoint_listing_fini(&names);
	close(fd);
}

const char *checkpoint_torn(int folder_fd, const char *name, bool folder)
{
	struct search search = {0};

	if (!folder)
		return named_torn(folder_fd, name);
	inspect_folder(&search, folder_fd, name, 0);
	return search.torn;
}
