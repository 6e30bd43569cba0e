/* neap/status.h: the rules for every neap function: errors, the order of arguments, pointers.
 *
 * Errors. Every function that can fail returns an enum neap_status; NEAP_OK is zero. On failure the `ret_` outputs of
 * a function are untouched. Functions on cold paths also fill a caller-owned struct neap_error, which needs no
 * allocation and so works when memory is short. Read it after a failure only.
 *
 * Arguments come in this order: the object, the inputs, the outputs (their names begin with ret_), `err`. A buffer is
 * followed by its length or room, a callback by its context.
 *
 * Pointers. None may be NULL, except these:
 *   - `err`, always
 *   - the object of a function that ends it (_close, _destroy, _abort, _fini, and _end of an object that neap
 *     allocated): the call then does nothing
 *   - a stream: NULL is the default stream
 *   - a pointer whose function's or field's comment says that it may be NULL
 * Where the caller owns the struct (struct neap_scope, neap_trial, neap_device_guard), the function that ends it
 * accepts one that is all zeros. Inputs are borrowed for the call; a comment says where something must live longer.
 * Text is UTF-8 and ends with a NUL. Pointers that a function returns belong to neap and live as long as its object,
 * unless the comment says who frees them.
 *
 * Threads: a struct neap_error belongs to its caller. Everything here is safe from any thread.
 */
#ifndef NEAP_STATUS_H
#define NEAP_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define NEAP_API               __attribute__((visibility("default")))
#define NEAP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define NEAP_API
#define NEAP_PRINTF(fmt, args)
#endif

/* The values are part of the ABI: new ones are added at the end. */
enum neap_status {
	NEAP_OK = 0,
	NEAP_EINVAL = 1,     /* an argument is wrong */
	NEAP_ENOMEM = 2,     /* the host is out of memory */
	NEAP_EOOM = 3,       /* the device, or the limit set on it, is out of memory */
	NEAP_ENODEVICE = 4,  /* no driver, or no such device */
	NEAP_EDRIVER = 5,    /* the driver refused; `cause` holds its own code */
	NEAP_ENOTSUP = 6,    /* not supported by this device, driver or build */
	NEAP_EIO = 7,        /* reading or writing failed */
	NEAP_ENOSPC = 8,     /* the disk is full */
	NEAP_ENOENT = 9,     /* no such file, process or name */
	NEAP_EPERM = 10,     /* not ours to touch */
	NEAP_EPARSE = 11,    /* input is malformed; line and column, or position, say where */
	NEAP_EPROTO = 12,    /* a peer broke the protocol */
	NEAP_EBUSY = 13,     /* held by someone else, try later */
	NEAP_ETIMEDOUT = 14, /* the stated bound has passed */
	NEAP_ESTATE = 15,    /* not in this state (capture under way, session ended, ...) */
	NEAP_EEXIST = 16,    /* it is there already */
	NEAP_ECANCELED = 17, /* asked to stop */
	NEAP_EINTERNAL = 18, /* a fault of neap's own */
};

struct neap_error {
	enum neap_status status;
	int cause;         /* CUresult, nvmlReturn_t or errno, whichever applies; else 0 */
	uint32_t line;     /* of a text input, from 1; 0: does not apply */
	uint32_t column;   /* likewise */
	uint64_t position; /* byte offset in a binary input; 0 where it does not apply */
	char message[256]; /* what was attempted, on what, what to do; always terminated */
};

/* "NEAP_EOOM" and so on; never NULL. Static storage. */
NEAP_API const char *neap_status_name(enum neap_status status);

/* A short sentence: "out of device memory". Never NULL. Static storage. */
NEAP_API const char *neap_status_text(enum neap_status status);

/* The library's version, "0.2.0". Static storage. */
NEAP_API const char *neap_version(void);

#ifdef __cplusplus
}
#endif
#endif
