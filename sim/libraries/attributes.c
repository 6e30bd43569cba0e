/* sim/libraries/attributes.c: see the header. */
#include "sim/libraries/attributes.h"

#include <string.h>

static const struct attribute *find(const struct attributes *table, int number)
{
	size_t i;

	for (i = 0; i < table->count; i++) {
		if (table->rows[i].number == number)
			return &table->rows[i];
	}
	return NULL;
}

bool attributes_set(const struct attributes *table, void *object, int number, const void *from, size_t bytes)
{
	const struct attribute *row = find(table, number);

	if (!object || !row || !from || bytes != row->bytes)
		return false;
	memcpy((char *)object + row->offset, from, bytes);
	return true;
}

bool attributes_get(const struct attributes *table, const void *object, int number, void *to, size_t bytes,
		    size_t *ret_bytes)
{
	const struct attribute *row = find(table, number);

	if (!object || !row || (bytes == 0 && !ret_bytes) || (bytes != 0 && (!to || bytes < row->bytes)))
		return false;
	if (bytes != 0)
		memcpy(to, (const char *)object + row->offset, row->bytes);
	if (ret_bytes)
		*ret_bytes = row->bytes;
	return true;
}
