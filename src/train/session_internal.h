/* train/session_internal.h: the session's parts, for the files of src/train alone. */
#ifndef NEAP_TRAIN_SESSION_INTERNAL_H
#define NEAP_TRAIN_SESSION_INTERNAL_H

#include "train/cleanup.h"

#define LOW_MARKS 512 /* of the newest steps; the leak test uses as many */

#define NEAP_REASON_CAPACITY 160

enum neap_level_kind { NEAP_LEVEL_DEVICE, NEAP_LEVEL_HOST, NEAP_LEVEL_KINDS };

/* At which step memory will end. */
struct neap_forecast {
	bool known;
	uint64_t low_step, step, high_step;
	uint64_t bytes_per_step;
};

struct neap_train {
	struct neap_alloc *alloc;
	struct neap_train_options options; /* pointers in it: name is replaced by ours, log is the host's */
	char name[64];
	struct neap_train_settings now; /* in force */
	uint64_t steps, ticks, ticks_in_step, epochs;
	struct neap_train_summary summary;
	uint64_t began_ns, first_step; /* when the session began; the step after which it continued */
	/* For each reason: how many cleanups in a row gave nothing back. */
	unsigned fruitless[NEAP_CLEANUP_LEAK + 1];
	/* Likewise: how many in a row gave back memory that was allocated again at once. */
	unsigned futile[NEAP_CLEANUP_LEAK + 1];
	struct {
		enum neap_cleanup_reason reason;
		uint64_t freed_bytes, reserved_bytes; /* given back; still reserved after it */
		bool judged;                          /* whether it was allocated again at once */
	} last_cleanup;
	struct {
		int64_t allocated, cached, host; /* bytes at the last mark; the first compares with itself */
		bool there;
	} last_mark;
	uint64_t retaken_bytes; /* bytes of cleanups that were reserved again before the next cleanup */
	bool failed;            /* the ladder is at its end, or the loop gave up */
	struct neap_threshold thresholds[NEAP_LEVEL_KINDS];
	bool warned_no_rung[NEAP_LEVEL_KINDS]; /* warned once that memory is short and the ladder at its end */
	enum neap_train_request request;
	char reason[NEAP_REASON_CAPACITY]; /* of the request */
	/* The leak watch: of the newest steps since the settings last changed, as rings: lowest allocated bytes, and
	 * how far above that the step rose. */
	uint64_t low_marks[LOW_MARKS], teeth[LOW_MARKS];
	uint64_t low_count;  /* ever put into the rings */
	bool leak_suspected; /* found by the last test */
	bool leak_reported;
	bool leak_acted; /* acted on this forecast already */
	struct neap_forecast forecast;
};

/* session.c */

/* Does and counts one cleanup. Warns if cleanups give nothing back. */
void neap_session_cleanup(struct neap_train *train, enum neap_cleanup_reason reason);
/* After a step: has the program allocated again what the last cleanup returned? */
void neap_session_judge_cleanup(struct neap_train *train);
/* The settings as the events SPLIT and RUNG report them. */
struct neap_event_settings neap_session_event_settings(const struct neap_train_settings *settings);
/* Emits the event of a mark and logs its line. */
void neap_session_mark(struct neap_train *train, enum neap_mark mark, uint64_t value);

/* Asks the loop to end. Only the first request counts. `event`: complete except for the name. */
void neap_session_request(struct neap_train *train, const char *name, const char *reason,
			  struct neap_event_request event);

/* start.c */

/* Ends processes that earlier runs left on the session's device, and names the rest. Blocks like
 * neap_leftovers_clear. */
void neap_session_clear_leftovers(struct neap_train *train);

/* restart.c */

/* The settings with which the image before this one restarted (neap_restart). False: none. Like the environment, they
 * are untrusted. */
bool neap_session_settings_left(struct neap_train_settings *ret_settings);

/* recover.c */

/* Goes one rung down the ladder; false at its end. Called between two steps, or between two tries of one step. */
bool neap_session_degrade(struct neap_train *train);

/* levels.c */

/* Bytes by which a step's peak can still grow: the device's free bytes and the cache, within the limit.
 * NEAP_LEFT_UNKNOWN if the driver does not report them. */
uint64_t neap_session_headroom(struct neap_train *train, uint64_t peak_bytes);
/* Called at the end of a step whose peak was `peak_bytes`. Checks the thresholds. */
void neap_session_watch_levels(struct neap_train *train, uint64_t peak_bytes);

/* leaks.c */

/* Tests the newest steps for a leak, if that is due, and acts before memory ends. */
void neap_session_watch_leak(struct neap_train *train);
/* Restarts the watch: the low-water marks so far no longer predict anything. */
void neap_session_forget_leak(struct neap_train *train);

#endif
