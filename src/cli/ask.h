/* cli/ask.h: the part that `neap clear`, `neap reset` and `neap fraction` share: it asks each process that --pid and
 * --all choose, and shows the answers of its devices, as text or as JSON:
 *
 *   for each process:  open --> process: a request --> ask_show_devices: for each device  see, then print or add
 *                           \-> stopped (it cannot answer)
 */
#ifndef NEAP_CLI_ASK_H
#define NEAP_CLI_ASK_H

#include "cli/command.h"
#include "machine/attached.h"
#include "proto/client.h"

#include <jansson.h>

struct ask;

typedef enum neap_status ask_process(struct ask *ask, struct neap_client *client, const char *name, json_t *process,
				     struct neap_error *err);

/* The functions that differ between the verbs. NULL: nothing to do. */
struct ask_verb {
	const char *command; /* "clear" */
	/* Asks the process, and shows its answer. `process`: its JSON object. */
	ask_process *process;
	/* The same for a stopped process; NULL: a stopped process is an error. */
	ask_process *stopped;
	/* Collects other figures for a device's answer, before it is shown. */
	void (*see)(struct ask *ask, pid_t pid, struct neap_device_reply *device);
	void (*print)(struct ask *ask, const struct neap_device_reply *device);
	/* Adds members to the device's JSON object. */
	void (*add)(struct ask *ask, const struct neap_device_reply *device, json_t *object);
	/* Adds members to the whole document. */
	void (*add_all)(struct ask *ask, json_t *root);
};

struct ask {
	const struct ask_verb *verb;
	unsigned shown;  /* NEAP_SHOWN_*: the figures in JSON */
	unsigned needed; /* NEAP_SHOWN_*: the figures without which an answer is malformed */
	bool json;
	void *context; /* the verb's */
	/* Set by ask_all. */
	struct neap_monitor *monitor; /* NULL: no NVML, because ... */
	struct neap_error no_monitor;
	char folder[4096];
	json_t *processes;
};

/* Returns the exit code: the last failure's, if some processes failed. Reports failures on stderr and in the JSON. */
int ask_all(struct ask *ask, const struct neap_arguments *arguments);

/* "GPU 1: NAME", or, when NVML does not know it, "CUDA device 0: NAME". */
void ask_print_title(const struct neap_device_reply *device);

/* Shows every device of a reply. A device that refused makes this process's part a failure. */
enum neap_status ask_show_devices(struct ask *ask, pid_t pid, const struct neap_fields *reply, json_t *process,
				  size_t *ret_count, struct neap_error *err);

/* Shows the program's own lines in a reply. Returns how many. */
size_t ask_show_lines(struct ask *ask, const struct neap_fields *reply, json_t *process);

#endif
