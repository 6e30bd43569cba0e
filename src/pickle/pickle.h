/* pickle/pickle.h: the machine that reads pickles, protocols 0 to 5. It imports and calls nothing. libc only, pure,
 * any thread.
 *
 * A pickle is a program for a stack machine. This machine carries out the instructions that build plain data:
 * numbers, texts, tuples, lists and dicts. The rest is up to its reader, a table of functions: what a text, a tuple
 * or a container's items become, what is kept in the memo, and the instructions that checkpoints have
 * (checkpoint/pickle.h) but snapshots of PyTorch do not (trace/pickle.h). No tree of objects is built: a reader looks
 * at a container's items when they are added, and then they are gone.
 *
 *   stack:  ... DICT MARK "action" "alloc" "addr" 140..      SETITEMS: add(DICT, 4 items)
 *                         ^ floor: above the innermost mark. A MARK's `a` is the floor before it.
 *           ... DICT                                         or what the reader made of it
 *
 * Bounds: the stack has at most NEAP_PICKLE_STACK_MAX values. Every length is compared with the bytes that are left
 * before anything is read. Nothing is recursive.
 */
#ifndef NEAP_PICKLE_PICKLE_H
#define NEAP_PICKLE_PICKLE_H

#include "neap/status.h"

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NEAP_PICKLE_STACK_MAX (1u << 20)
#define NEAP_PICKLE_NEXT      UINT64_MAX /* of put: the number after the highest one so far */
/* Bytes of the longest instruction without a length: BINFLOAT, FRAME. */
#define NEAP_PICKLE_ARGUMENT_MAX 9u

enum neap_pickle_type {
	NEAP_PICKLE_OTHER, /* anything that the reader does not use: its content is dropped */
	NEAP_PICKLE_NONE,
	NEAP_PICKLE_BOOL,  /* integer: 0 or 1 */
	NEAP_PICKLE_INT,   /* integer; of a wide reader, b: 0; 1: a is unsigned; 2: it needs more than 64 bits */
	NEAP_PICKLE_FLOAT, /* number */
	NEAP_PICKLE_TEXT,  /* what the reader's function put there */
	NEAP_PICKLE_LIST,
	NEAP_PICKLE_DICT,
	NEAP_PICKLE_MARK, /* not a value: MARK */
	NEAP_PICKLE_OWN,  /* the reader's own types begin here */
};

struct neap_pickled {
	uint8_t type;    /* enum neap_pickle_type, or one of the reader's */
	bool list;       /* it was made as a list */
	bool fresh;      /* made by an instruction, not fetched from the memo */
	bool memoised;   /* the reader's, as is memo: it has the number of a value that was put there */
	uint32_t detail; /* the reader's */
	uint64_t memo;
	union {
		uint64_t a;
		int64_t integer;
		double number;
		const char *text;
	};
	union {
		uint64_t b;
		size_t length; /* of `text`, which is not terminated */
	};
};

struct neap_pickle;

/* A reader's functions fail at the current instruction, with neap_pickle_fail. */
struct neap_pickle_reader {
	/* Makes at least `bytes` bytes available from `at` on by moving the window: sets begin, at, end and base.
	 * False: the input ends first. NULL: the window is the whole input. */
	bool (*fill)(struct neap_pickle *pickle, size_t bytes);
	/* Called before each instruction: may carry out some itself. False ends the reading. May be NULL. */
	bool (*ahead)(struct neap_pickle *pickle);
	/* Takes the `length` bytes from `at` on and pushes a value for them. They are in the input, as far as its
	 * length is known. */
	enum neap_status (*text)(struct neap_pickle *pickle, uint64_t length);
	/* Puts the value on top into the memo, or pushes the one with this number. */
	enum neap_status (*put)(struct neap_pickle *pickle, uint64_t number);
	enum neap_status (*get)(struct neap_pickle *pickle, uint64_t number);
	/* What a tuple is; *ret_tuple is OTHER. */
	void (*tuple)(const struct neap_pickled *items, size_t count, struct neap_pickled *ret_tuple);
	/* Adds items to a dict (key and value in turn; `count` counts both) or list, which is on top of the stack;
	 * the items are above the top. */
	enum neap_status (*add)(struct neap_pickle *pickle, struct neap_pickled *container,
				struct neap_pickled *items, size_t count, bool dict);
	/* An instruction that the machine leaves to its reader, or that does not exist; `at` is behind its code. */
	enum neap_status (*other)(struct neap_pickle *pickle, unsigned char code);
	size_t marks_max; /* how deep containers may be nested */
	bool wide;        /* it has use for numbers of more than 63 bits; otherwise they are OTHER */
};

/* Zeroed but for reader, err, the window and input_bytes. */
struct neap_pickle {
	const struct neap_pickle_reader *reader;
	struct neap_error *err;
	const unsigned char *begin, *at, *end; /* the window, unread from `at` on */
	uint64_t base;                         /* position of `begin` */
	uint64_t input_bytes;                  /* UINT64_MAX: unknown */
	uint64_t position;                     /* of the instruction */
	struct neap_pickled *stack;
	size_t depth, capacity, floor, mark_count;
	bool cut_short; /* reading failed since the input ended */
};

/* Reads up to STOP, or until `ahead` returns false. Errors: NEAP_EPARSE with the position; NEAP_ENOMEM; the reader's.
 * The caller calls neap_pickle_fini in any case. */
enum neap_status neap_pickle_run(struct neap_pickle *pickle);
void neap_pickle_fini(struct neap_pickle *pickle);

/* --- for readers --- */

/* Fails at the current instruction; always returns NEAP_EPARSE. */
enum neap_status neap_pickle_fail(struct neap_pickle *pickle, const char *format, ...) NEAP_PRINTF(2, 3);
enum neap_status neap_pickle_no_memory(struct neap_pickle *pickle);
/* Fails since the input ends within `what`. */
enum neap_status neap_pickle_cut_short(struct neap_pickle *pickle, const char *what);

/* Fails unless there are `count` values above the innermost mark. */
enum neap_status neap_pickle_need(struct neap_pickle *pickle, size_t count, const char *name);
enum neap_status neap_pickle_push(struct neap_pickle *pickle, unsigned type, uint64_t a, uint64_t b);
/* Removes the innermost mark and everything above it, which stays readable; *ret_count is how much that was. */
enum neap_status neap_pickle_drop_marked(struct neap_pickle *pickle, const char *name, size_t *ret_count);
enum neap_status neap_pickle_skip(struct neap_pickle *pickle, uint64_t length, const char *what);

static inline uint64_t neap_pickle_position(const struct neap_pickle *pickle)
{
	return pickle->base + (uint64_t)(pickle->at - pickle->begin);
}

static inline bool neap_pickle_has(struct neap_pickle *pickle, size_t bytes)
{
	return (size_t)(pickle->end - pickle->at) >= bytes ||
	       (pickle->reader->fill && pickle->reader->fill(pickle, bytes));
}

/* Little-endian, as all numbers of a pickle are but a BINFLOAT's; `count` is 8 at most. */
static inline uint64_t neap_pickle_number(const unsigned char *bytes, size_t count)
{
	uint64_t value = 0;

	memcpy(&value, bytes, count);
	return le64toh(value);
}

/* --- the instructions there are --- */

struct neap_pickle_code {
	const char *name; /* NULL: there is no such instruction */
	uint8_t width;    /* bytes of the number or length that follows the code */
	bool calls;       /* Python's unpickler would import or call something */
	/* of an instruction that is left to the reader: what follows its code, and how many values it takes from the
	 * stack */
	uint8_t lines; /* texts up to a newline */
	uint8_t bytes; /* of a number */
	uint8_t count; /* of a length, and then so many bytes */
	uint8_t takes;
};

extern const struct neap_pickle_code neap_pickle_codes[256];

#endif
