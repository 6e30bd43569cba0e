/* sim/libraries/attributes.h: descriptors whose fields a program sets and gets by number.
 *
 * cuBLASLt and cuSPARSELt have many of them. A table has the place of each attribute in the descriptor:
 *
 *   set(descriptor, 3, &value, 4)         descriptor  [..|value|..]
 *   get(descriptor, 3, &value, 4, &n)                   ^ row {3, offset, 4}
 *
 * Both refuse a number that is not in the table. Set needs the exact size; get takes a larger buffer, too.
 */
#ifndef NEAP_RUNTIME_LIBRARIES_ATTRIBUTES_H
#define NEAP_RUNTIME_LIBRARIES_ATTRIBUTES_H

#include <stdbool.h>
#include <stddef.h>

struct attribute {
	int number;
	size_t offset;
	size_t bytes;
};
#define ATTRIBUTE(number, type, field)                                                                               \
	{                                                                                                            \
		number, offsetof(type, field), sizeof(((type *)NULL)->field)                                         \
	}

struct attributes {
	const struct attribute *rows;
	size_t count;
};
#define ATTRIBUTES(rows)                                                                                             \
	{                                                                                                            \
		rows, sizeof rows / sizeof((rows)[0])                                                                \
	}

bool attributes_set(const struct attributes *table, void *object, int number, const void *from, size_t bytes);
/* With bytes = 0 it only writes *ret_bytes, the required size. `ret_bytes` may be NULL otherwise. */
bool attributes_get(const struct attributes *table, const void *object, int number, void *to, size_t bytes,
		    size_t *ret_bytes);

#endif
