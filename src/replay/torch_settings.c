/* replay/torch_settings.c: parses "key:value,key:[interval:value,...]" in two passes; each error has its column. */
#include "replay/torch_settings.h"
#include "base/error.h"
#include "base/units.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define LARGE_SEGMENT_MB    20u
#define SMALLEST_SEGMENT_MB 11u /* as in PyTorch: more than the largest request that shares a segment */
#define LARGEST_RESERVE_GIB 1e6
#define TOKEN_CAPACITY      64

struct reader {
	const char *text;
	const char *at;
	struct neap_error *err;
	struct neap_torch_settings settings;
	bool lenient; /* unknown settings are skipped */
	bool first;   /* the first pass reads only large_segment_size_mb, which counts at any place */
};

static uint32_t column(const struct reader *reader) { return (uint32_t)(reader->at - reader->text) + 1; }

static void skip_space(struct reader *reader)
{
	while (isspace((unsigned char)*reader->at))
		reader->at++;
}

static bool accept(struct reader *reader, char c)
{
	skip_space(reader);
	if (*reader->at != c)
		return false;
	reader->at++;
	return true;
}

static enum neap_status expect(struct reader *reader, char c)
{
	if (accept(reader, c))
		return NEAP_OK;
	return neap_fail_at(reader->err, 1, column(reader), "allocator settings: expected '%c' here", c);
}

/* A run of characters up to the next ',', ':', bracket or space. */
static enum neap_status read_token(struct reader *reader, const char *what, char token[TOKEN_CAPACITY])
{
	skip_space(reader);
	size_t length = strcspn(reader->at, ",:[] \t\r\n");
	if (!length || length >= TOKEN_CAPACITY)
		return neap_fail_at(reader->err, 1, column(reader), "allocator settings: expected %s here", what);
	memcpy(token, reader->at, length);
	token[length] = '\0';
	reader->at += length;
	return NEAP_OK;
}

static enum neap_status read_number(struct reader *reader, const char *what, uint64_t least, uint64_t most,
				    uint64_t *ret_value)
{
	char token[TOKEN_CAPACITY];
	uint64_t value = 0;
	skip_space(reader);
	uint32_t start = column(reader);
	enum neap_status status = read_token(reader, what, token);
	if (status)
		return status;
	if (neap_u64_parse(token, &value, NULL) != NEAP_OK || value < least || value > most)
		return neap_fail_at(reader->err, 1, start,
				    "allocator settings: %s is a whole number from %llu, not '%s'", what,
				    (unsigned long long)least, token);
	*ret_value = value;
	return NEAP_OK;
}

/* Reads a number of MB. It must be at least `least`, a shared segment's size, because a block of such a segment must
 * stay splittable. */
static enum neap_status read_megabytes(struct reader *reader, const char *what, uint64_t least, uint64_t *ret_bytes)
{
	uint64_t value = 0;
	enum neap_status status = read_number(reader, what, least, UINT64_MAX / NEAP_MIB, &value);
	if (!status)
		*ret_bytes = value * NEAP_MIB;
	return status;
}

/* Reads a share. `open`: 1 itself is not allowed. */
static enum neap_status read_share(struct reader *reader, const char *what, bool open, double *ret_share)
{
	char token[TOKEN_CAPACITY];
	double value = 0;
	skip_space(reader);
	uint32_t start = column(reader);
	enum neap_status status = read_token(reader, what, token);
	if (status)
		return status;
	if (neap_double_parse(token, &value, NULL) != NEAP_OK || value <= 0 || value > 1 || (open && value >= 1))
		return neap_fail_at(reader->err, 1, start, "allocator settings: %s lies between 0 and 1, not '%s'",
				    what, token);
	*ret_share = value;
	return NEAP_OK;
}

static enum neap_status read_bool(struct reader *reader, const char *what, bool *ret_value)
{
	char token[TOKEN_CAPACITY];
	skip_space(reader);
	uint32_t start = column(reader);
	enum neap_status status = read_token(reader, what, token);
	if (status)
		return status;
	if (strcmp(token, "True") != 0 && strcmp(token, "False") != 0)
		return neap_fail_at(reader->err, 1, start, "allocator settings: %s is True or False, not '%s'", what,
				    token);
	*ret_value = token[0] == 'T';
	return NEAP_OK;
}

static bool power_of_two(uint64_t value) { return value && !(value & (value - 1)); }

static enum neap_status read_divisions(struct reader *reader, uint32_t *ret_divisions)
{
	uint64_t value = 0;
	skip_space(reader);
	uint32_t start = column(reader);
	enum neap_status status = read_number(reader, "roundup_power2_divisions", 0, UINT32_MAX, &value);
	if (status)
		return status;
	if (value && !power_of_two(value))
		return neap_fail_at(reader->err, 1, start,
				    "allocator settings: roundup_power2_divisions are powers of two, or 0 for none");
	*ret_divisions = (uint32_t)value;
	return NEAP_OK;
}

/* Reads one "256:1" or ">:8" of the list. Sizes before the first interval get its value. As in PyTorch, ">"
 * replaces the interval before it, and starts where that one did. */
static enum neap_status read_interval(struct reader *reader, size_t *last, bool *first)
{
	uint32_t *divisions = reader->settings.divisions, value = 0;
	uint64_t megabytes = 0;
	bool rest = accept(reader, '>');
	skip_space(reader);
	uint32_t start = column(reader);
	enum neap_status status =
		rest ? NEAP_OK : read_number(reader, "an interval in MiB", 1, UINT32_MAX, &megabytes);
	if (!status && !rest && !power_of_two(megabytes))
		status = neap_fail_at(reader->err, 1, start,
				      "allocator settings: the intervals of roundup_power2_divisions are powers of "
				      "two, in MiB");
	if (!status)
		status = expect(reader, ':');
	if (!status)
		status = read_divisions(reader, &value);
	if (status)
		return status;
	if (rest) {
		for (size_t i = *last; i < NEAP_TORCH_DIVISIONS; i++)
			divisions[i] = value;
		return NEAP_OK;
	}
	size_t index = (size_t)__builtin_ctzll(megabytes);
	if (index >= NEAP_TORCH_DIVISIONS)
		index = NEAP_TORCH_DIVISIONS - 1;
	for (size_t i = 0; *first && i < index; i++)
		divisions[i] = value;
	divisions[index] = value;
	*first = false;
	*last = index;
	return NEAP_OK;
}

static enum neap_status read_rounding(struct reader *reader)
{
	uint32_t value = 0;
	size_t last = 0;
	bool first = true;
	if (!accept(reader, '[')) {
		enum neap_status status = read_divisions(reader, &value);
		for (size_t i = 0; !status && i < NEAP_TORCH_DIVISIONS; i++)
			reader->settings.divisions[i] = value;
		return status;
	}
	if (accept(reader, ']'))
		return NEAP_OK;
	do {
		enum neap_status status = read_interval(reader, &last, &first);
		if (status)
			return status;
	} while (accept(reader, ','));
	return expect(reader, ']');
}

static enum neap_status read_backend(struct reader *reader)
{
	char token[TOKEN_CAPACITY];
	enum neap_status status = read_token(reader, "a backend", token);
	if (!status && strcmp(token, "native") != 0)
		return neap_fail(reader->err, NEAP_ENOTSUP,
				 "allocator settings: only the backend native can be replayed, not '%s'", token);
	return status;
}

/* Reads large_segment_size_mb, which is also the default of max_non_split_rounding_mb. */
static enum neap_status read_large_segment(struct reader *reader)
{
	uint64_t megabytes = 0;
	enum neap_status status =
		read_number(reader, "large_segment_size_mb", SMALLEST_SEGMENT_MB, UINT64_MAX / NEAP_MIB, &megabytes);
	if (!status && reader->first)
		reader->settings.large_segment_bytes = reader->settings.max_non_split_rounding_bytes =
			megabytes * NEAP_MIB;
	return status;
}

/* Reads "0.5", a share of the device, or "40G". PyTorch logs and skips other values; here they are errors. */
static enum neap_status read_reserve(struct reader *reader, double *ret_share, uint64_t *ret_bytes)
{
	char token[TOKEN_CAPACITY];
	double value = 0;
	skip_space(reader);
	uint32_t start = column(reader);
	enum neap_status status = read_token(reader, "a share of the device or a size such as 40G", token);
	if (status)
		return status;
	size_t length = strlen(token);
	bool gibibytes = token[length - 1] == 'G';
	if (gibibytes)
		token[length - 1] = '\0';
	if (neap_double_parse(token, &value, NULL) != NEAP_OK || !(value > 0))
		return neap_fail_at(reader->err, 1, start,
				    "allocator settings: expandable_segments_reserve is a share of the device's "
				    "memory (0.5) or a number of GiB (40G)");
	value = value < LARGEST_RESERVE_GIB ? value : LARGEST_RESERVE_GIB;
	*ret_share = gibibytes ? 0 : value;
	*ret_bytes = gibibytes ? (uint64_t)(value * (double)NEAP_GIB) : 0;
	return NEAP_OK;
}

/* Reads "[serving:0.25,other:8G]", for streams that have a class. A trace does not record the class. */
static enum neap_status read_reserves(struct reader *reader)
{
	char class[TOKEN_CAPACITY];
	double share;
	uint64_t bytes;
	enum neap_status status = expect(reader, '[');
	if (status || accept(reader, ']'))
		return status;
	do {
		status = read_token(reader, "a class", class);
		if (!status)
			status = expect(reader, ':');
		if (!status)
			status = read_reserve(reader, &share, &bytes);
	} while (!status && accept(reader, ','));
	return status == NEAP_OK ? expect(reader, ']') : status;
}

/* Skips a value or a list of values. */
static void skip_value(struct reader *reader)
{
	bool list = accept(reader, '[');
	reader->at += strcspn(reader->at, list ? "]" : ",");
	if (list)
		accept(reader, ']');
}

/* Reads the value of a setting that is unknown, or that does not change what a replay computes. */
static enum neap_status read_other(struct reader *reader, const char *key, uint32_t start)
{
	static const char *const others[] = {
		"release_lock_on_cudamalloc",     "release_lock_on_hipmalloc",        "pinned_use_cuda_host_register",
		"pinned_use_hip_host_register",   "pinned_num_register_threads",      "pinned_use_background_threads",
		"pinned_reserve_segment_size_mb", "pinned_max_round_threshold_mb",    "pinned_max_cached_size_mb",
		"pinned_free_catch_all",          "graph_capture_record_stream_reuse"};
	char value[TOKEN_CAPACITY];
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		if (strcmp(key, others[i]) == 0)
			return read_token(reader, "a value", value);
	if (!reader->lenient)
		return neap_fail_at(reader->err, 1, start, "allocator settings: there is no setting '%s'", key);
	skip_value(reader);
	return NEAP_OK;
}

static enum neap_status read_setting(struct reader *reader)
{
	char key[TOKEN_CAPACITY];
	skip_space(reader);
	uint32_t start = column(reader);
	struct neap_torch_settings *settings = &reader->settings;
	enum neap_status status = read_token(reader, "a setting's name", key);
	if (!status)
		status = expect(reader, ':');
	if (status)
		return status;
	if (reader->first && strcmp(key, "large_segment_size_mb") != 0) {
		skip_value(reader);
		return NEAP_OK;
	}
	if (strcmp(key, "expandable_segments") == 0)
		return read_bool(reader, key, &settings->expandable_segments);
	if (strcmp(key, "large_segment_size_mb") == 0)
		return read_large_segment(reader);
	if (strcmp(key, "max_split_size_mb") == 0)
		return read_megabytes(reader, key, settings->large_segment_bytes / NEAP_MIB,
				      &settings->max_split_bytes);
	if (strcmp(key, "max_non_split_rounding_mb") == 0)
		return read_megabytes(reader, key, settings->large_segment_bytes / NEAP_MIB,
				      &settings->max_non_split_rounding_bytes);
	if (strcmp(key, "garbage_collection_threshold") == 0)
		return read_share(reader, key, true, &settings->garbage_collection_threshold);
	if (strcmp(key, "per_process_memory_fraction") == 0)
		return read_share(reader, key, false, &settings->fraction);
	if (strcmp(key, "throw_on_cudamalloc_oom") == 0)
		return read_bool(reader, key, &settings->throw_on_oom);
	if (strcmp(key, "roundup_power2_divisions") == 0)
		return read_rounding(reader);
	if (strcmp(key, "expandable_segments_reserve") == 0)
		return read_reserve(reader, &settings->reserve_share, &settings->reserve_bytes);
	if (strcmp(key, "expandable_segments_reserve_by_class") == 0)
		return read_reserves(reader);
	if (strcmp(key, "backend") == 0)
		return read_backend(reader);
	return read_other(reader, key, start);
}

void neap_torch_settings_default(struct neap_torch_settings *ret_settings)
{
	*ret_settings = (struct neap_torch_settings){
		.max_split_bytes = NEAP_TORCH_UNLIMITED,
		.max_non_split_rounding_bytes = LARGE_SEGMENT_MB * NEAP_MIB,
		.large_segment_bytes = LARGE_SEGMENT_MB * NEAP_MIB,
	};
}

static enum neap_status read_settings(struct reader *reader)
{
	skip_space(reader);
	while (*reader->at) {
		enum neap_status status = read_setting(reader);
		skip_space(reader);
		if (!status && *reader->at)
			status = expect(reader, ',');
		if (status)
			return status;
		skip_space(reader);
	}
	return NEAP_OK;
}

static enum neap_status read_twice(struct reader *reader)
{
	const char *text = reader->text;
	struct neap_error *err = reader->err;
	if (!text)
		return NEAP_OK;
	reader->err = NULL;
	reader->first = true;
	read_settings(reader);
	reader->at = text;
	reader->err = err;
	reader->first = false;
	return read_settings(reader);
}

enum neap_status neap_torch_settings_parse(const char *text, struct neap_torch_settings *settings,
					   struct neap_error *err)
{
	struct reader reader = {.text = text, .at = text, .err = err, .settings = *settings};
	enum neap_status status = read_twice(&reader);
	if (!status)
		*settings = reader.settings;
	return status;
}

void neap_torch_settings_take(const char *text, struct neap_torch_settings *settings)
{
	struct reader reader = {.text = text, .at = text, .settings = *settings, .lenient = true};
	read_twice(&reader);
	*settings = reader.settings;
}

uint64_t neap_torch_reserve(const struct neap_torch_settings *settings, uint64_t device_bytes)
{
	uint64_t full = device_bytes + device_bytes / 8, bytes = settings->reserve_bytes;
	if (settings->reserve_share > 0)
		bytes = (uint64_t)(settings->reserve_share * (double)device_bytes);
	return bytes && bytes < full ? bytes : full;
}

/* Rounds up to the next of `divisions` (a power of two) equal steps between two powers of two. */
static uint64_t round_to_step(uint64_t bytes, uint64_t divisions)
{
	if (power_of_two(bytes))
		return bytes;
	uint64_t floor = 1ull << (63 - __builtin_clzll(bytes));
	uint64_t step = floor >> (63 - __builtin_clzll(divisions));
	if (!step)
		return floor << 1;
	return (bytes + step - 1) & ~(step - 1);
}

uint64_t neap_torch_round(const struct neap_torch_settings *settings, uint64_t bytes)
{
	if (bytes < 512)
		return 512;
	int power = 63 - __builtin_clzll(bytes) - 20;
	int index = power < 0 ? 0 : power >= NEAP_TORCH_DIVISIONS ? NEAP_TORCH_DIVISIONS - 1 : power;
	uint64_t divisions = settings->divisions[index];
	if (divisions > 1 && bytes > 512 * divisions)
		return round_to_step(bytes, divisions);
	return (bytes + 511) & ~511ull;
}
