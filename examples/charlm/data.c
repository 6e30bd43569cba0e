/* charlm/data.c: see the header. */
#include "data.h"

#include "fail.h"
#include "random.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_MAX = 1 << 26 };

static enum neap_status read_all(struct data *data, const char *path, struct neap_error *err)
{
	FILE *file = fopen(path, "rb");

	if (!file)
		return fail(err, errno == ENOENT ? NEAP_ENOENT : NEAP_EIO, "opening text %s: %s", path,
			    strerror(errno));
	data->ids = malloc(LENGTH_MAX + 1); /* pages that are never written cost nothing */
	if (data->ids)
		data->length = fread(data->ids, 1, LENGTH_MAX + 1, file);
	const char *wrong = !data->ids                  ? "the host is out of memory"
			    : ferror(file)              ? strerror(errno)
			    : data->length > LENGTH_MAX ? "it is larger than 64 MiB"
							: NULL;
	fclose(file);
	return wrong ? fail(err, NEAP_EIO, "reading text %s: %s", path, wrong) : NEAP_OK;
}

/* Bytes become numbers 0, 1, ... in the order of their codes. */
static void number(struct data *data)
{
	size_t times[256] = {0};
	unsigned char ids[256];

	data->fingerprint = UINT64_C(0xCBF29CE484222325); /* FNV-1a, 64 bits */
	for (size_t i = 0; i < data->length; i++) {
		times[data->ids[i]]++;
		data->fingerprint = (data->fingerprint ^ data->ids[i]) * UINT64_C(0x100000001B3);
	}
	for (size_t i = 0; i < 256; i++) {
		double share = (double)times[i] / (double)data->length;

		if (!times[i])
			continue;
		ids[i] = (unsigned char)data->vocabulary++;
		data->entropy_nats -= share * log(share);
	}
	for (size_t i = 0; i < data->length; i++)
		data->ids[i] = ids[data->ids[i]];
}

enum neap_status data_load(struct data *data, const char *path, size_t context, struct neap_error *err)
{
	*data = (struct data){0};

	enum neap_status status = read_all(data, path, err);

	if (!status && data->length <= context)
		status = fail(err, NEAP_EINVAL,
			      "text %s has %zu characters, a sample needs %zu: give a longer text, "
			      "or a smaller --context",
			      path, data->length, context + 1);
	if (!status)
		number(data);
	else
		data_fini(data);
	return status;
}

void data_fini(struct data *data)
{
	free(data->ids);
	*data = (struct data){0};
}

void data_samples(const struct data *data, uint64_t seed, uint64_t step, size_t first, size_t count, size_t context,
		  int32_t *ret_ids, int32_t *ret_targets)
{
	for (size_t i = 0; i < count; i++) {
		struct random random = random_from(seed, step, first + i);
		size_t at = random_next(&random) % (data->length - context);

		for (size_t k = 0; k < context; k++) {
			ret_ids[i * context + k] = data->ids[at + k];
			ret_targets[i * context + k] = data->ids[at + k + 1];
		}
	}
}
