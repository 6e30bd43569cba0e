/* proto/commands.h: the requests an agent answers, once: its dispatch, the client and the help come from this table.
 * A new verb is one row here and one function in src/agent/requests.c.
 *
 *   X(number, NAME, name, help)      numbers are part of the protocol: never changed, never used again
 */
#ifndef NEAP_PROTO_COMMANDS_H
#define NEAP_PROTO_COMMANDS_H

#include "neap/status.h"

#define NEAP_REQUESTS(X)                                                                                             \
	X(1, HELLO, hello, "the process: PID, start time, program, versions")                                        \
	X(2, INFO, info, "what it holds on each device, where it records, what is wrong with it if anything is")     \
	X(3, CLEAR, clear, "return cached memory to the driver; with force, also call what the program registered")  \
	X(4, RESET_PEAK, reset_peak, "reset the peak statistics")                                                    \
	X(5, FRACTION, fraction, "limit what the allocators may reserve; empties the cache where it is above that")  \
	X(6, RELEASE, release, "for a process of the same run that is out of memory: give back what is only cached")

enum neap_request {
#define X(number, NAME, name, help) NEAP_REQUEST_##NAME = number,
	NEAP_REQUESTS(X)
#undef X
};

/* The request's name, such as "clear", or "unknown request". Static storage. */
static inline const char *neap_request_name(unsigned request)
{
	switch (request) {
#define X(number, NAME, name, help)                                                                                  \
	case number:                                                                                                 \
		return #name;
		NEAP_REQUESTS(X)
#undef X
	default:
		return "unknown request";
	}
}

/* Fields of requests and replies. Numbers are part of the protocol. */
enum neap_field {
	/* any reply whose status is not 0 */
	NEAP_FIELD_ERROR = 1, /* string */
	/* hello, info */
	NEAP_FIELD_PID = 2,         /* u64 */
	NEAP_FIELD_START_TICKS = 3, /* u64 */
	NEAP_FIELD_NAME = 4,        /* string: the program, or a device */
	NEAP_FIELD_VERSION = 5,     /* string: libneap's */
	NEAP_FIELD_RUN_ID = 6,      /* string */
	NEAP_FIELD_RECORD = 7,      /* string: path of the recording */
	NEAP_FIELD_FAULT = 8,       /* string: why the agent disabled itself; absent while all is well */
	/* clear: request */
	NEAP_FIELD_FORCE = 9, /* u64: 1 */
	/* fraction: request, and what is in force */
	NEAP_FIELD_FRACTION = 10, /* f64: above 0, at most 1 */
	/* any request: 1: execute it even if the peer has closed its connection */
	NEAP_FIELD_UNATTENDED = 11, /* u64 */
	/* release: request, with NEAP_FIELD_UUID and _RUN_ID; it answers _FREED */
	NEAP_FIELD_SERIES = 12,       /* string */
	NEAP_FIELD_MILLISECONDS = 13, /* u64: how long the peer can wait for the answer */
	/* info, clear, reset_peak, fraction: one group per allocator (proto/device_answer.h) */
	NEAP_FIELD_DEVICE = 16,           /* bytes: a group of the fields below */
	NEAP_FIELD_UUID = 17,             /* bytes: 16 */
	NEAP_FIELD_ORDINAL = 18,          /* u64 */
	NEAP_FIELD_ALLOCATED = 19,        /* u64, bytes; after the request */
	NEAP_FIELD_RESERVED = 20,         /* u64, bytes; likewise */
	NEAP_FIELD_MAX_ALLOCATED = 21,    /* u64, bytes; before a reset of the peaks */
	NEAP_FIELD_MAX_RESERVED = 22,     /* u64, bytes; likewise */
	NEAP_FIELD_RESERVED_BEFORE = 23,  /* u64, bytes */
	NEAP_FIELD_ALLOCATED_BEFORE = 24, /* u64, bytes */
	NEAP_FIELD_FREE_BEFORE = 25,      /* u64, bytes the driver called free; absent if unknown */
	NEAP_FIELD_FREE = 26,             /* u64, bytes; likewise */
	NEAP_FIELD_TOTAL = 27,            /* u64, bytes; likewise */
	NEAP_FIELD_FREED = 28,            /* u64, bytes given back */
	NEAP_FIELD_NANOSECONDS = 29,      /* u64, how long it took */
	NEAP_FIELD_STATUS = 30,           /* u64: enum neap_status of this device's part; with NEAP_FIELD_ERROR */
	NEAP_FIELD_RESERVED_NOW = 31,     /* u64, bytes when the answer was written: the program continues */
	NEAP_FIELD_LIMIT_BEFORE = 32,     /* u64, bytes that may be reserved; absent: no limit */
	NEAP_FIELD_LIMIT = 33,            /* u64, bytes; likewise */
	NEAP_FIELD_EMPTIED = 34,          /* u64: 1 when the cache had to be emptied for it */
	/* clear: the bytes that the program's own callbacks report as released */
	NEAP_FIELD_CALLBACK_BYTES = 40, /* u64 */
	/* clear: the program's remarks (what pins its memory), one line each */
	NEAP_FIELD_LINE = 41, /* bytes: UTF-8 */
};

#endif
