/* cli/cmd_fraction.c: `neap fraction`: limits what the allocators of running attached processes may reserve. */
#include "base/units.h"
#include "cli/ask.h"
#include "cli/print.h"
#include "machine/attached.h"
#include "machine/sample.h"
#include "proto/commands.h"
#include "store/json_rows.h"

#include <string.h>

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_fraction = {
	.name = "fraction",
	.usage = "F [--pid P|--all] [--json]",
	.summary = "limit the memory that running processes may reserve on each device",
	.details = neap_help_fraction,
	.options =
		(const struct neap_option[]){
			{"pid", "P", "this process; may be given several times"},
			{"all", NULL, "every attached process"},
			{"json", NULL, "the result as JSON"},
			{NULL, NULL, NULL},
		},
	.operands_min = 1,
	.operands_max = 1,
	.run = run,
};

/* The process's memory on a device outside its allocator, from the driver. */
struct beside {
	bool known;
	uint64_t context;
	int64_t other; /* bytes of neither a context nor an allocator */
};

struct limiting {
	double fraction;
	struct neap_sample sample; /* of the devices, after the process answered */
	bool looked;
	struct beside beside; /* the device that is shown */
};

/* The process's other memory on the device, from the driver and the page. */
static void look_beside(struct ask *ask, pid_t pid, struct neap_device_reply *device)
{
	struct limiting *limiting = ask->context;
	limiting->beside = (struct beside){0};
	for (size_t i = 0; limiting->looked && i < limiting->sample.device_count; i++) {
		const struct neap_sample_device *one = &limiting->sample.devices[i];
		if (memcmp(one->reading.uuid, device->answer.uuid, sizeof device->answer.uuid) != 0)
			continue;
		for (size_t p = 0; p < one->process_count; p++) {
			const struct neap_ledger_process *account = &one->processes[p].account;
			if (account->pid != pid || !account->attached || account->bytes == NEAP_BYTES_UNKNOWN)
				continue;
			limiting->beside = (struct beside){true, account->context, account->other};
		}
	}
}

static const char *limit_text(uint64_t limit, char text[NEAP_UNITS_CAPACITY])
{
	return limit == UINT64_MAX ? "none" : neap_size_format(limit, text);
}

/* Prints how much it can still grow, or why it cannot. */
static void print_headroom(const struct neap_device_answer *device)
{
	char size[NEAP_UNITS_CAPACITY], live[NEAP_UNITS_CAPACITY];
	if (device->limit == UINT64_MAX)
		return;
	if (device->allocated > device->limit)
		printf("  live bytes are %s, above the limit: further growth will fail\n",
		       neap_size_format(device->allocated, size));
	else if (device->reserved > device->limit)
		printf("  %s stay reserved, above the limit, for %s of live blocks: further growth will fail\n",
		       neap_size_format(device->reserved, size), neap_size_format(device->allocated, live));
	else
		printf("  it may reserve %s more\n", neap_size_format(device->limit - device->reserved, size));
}

static void print_device(struct ask *ask, const struct neap_device_reply *reply)
{
	const struct limiting *limiting = ask->context;
	const struct beside *beside = &limiting->beside;
	const struct neap_device_answer *device = &reply->answer;
	char from[NEAP_UNITS_CAPACITY], to[NEAP_UNITS_CAPACITY], change[NEAP_UNITS_CAPACITY],
		time[NEAP_UNITS_CAPACITY];
	ask_print_title(reply);
	printf("  %-10s %10s before, %10s after (%g of %s)\n", "limit", limit_text(device->limit_before, from),
	       limit_text(device->limit, to), limiting->fraction, neap_size_format(device->total, change));
	printf("  %-10s %10s before, %10s after (%s)\n", "reserved", neap_size_format(device->reserved_before, from),
	       neap_size_format(device->reserved, to),
	       neap_size_format_delta((int64_t)(device->reserved - device->reserved_before), change));
	if (device->free_before != NEAP_BYTES_UNKNOWN && device->free != NEAP_BYTES_UNKNOWN)
		printf("  %-10s %10s before, %10s after (%s)\n", "free", neap_size_format(device->free_before, from),
		       neap_size_format(device->free, to),
		       neap_size_format_delta((int64_t)(device->free - device->free_before), change));
	if (device->status != NEAP_OK)
		printf("  the limit is in force, but the cache was not emptied: %s\n",
		       NEAP_PRINTABLE(device->message));
	else if (device->emptied)
		printf("  emptied the cache: gave back %s in %s\n", neap_size_format(device->freed, from),
		       neap_duration_format(device->nanoseconds, time));
	else
		printf("  the cache stays: what is reserved is within the limit; it took %s\n",
		       neap_duration_format(device->nanoseconds, time));
	print_headroom(device);
	if (device->reserved_now > device->reserved)
		printf("  the program continues and allocated %s again since then\n",
		       neap_size_format(device->reserved_now - device->reserved, from));
	if (beside->known)
		printf("  beside it  %10s context, %s of the process's other memory: the limit is not for these\n",
		       neap_size_format(beside->context, from), neap_size_format_delta(beside->other, change));
	else
		puts("  beside it  the context and the process's other memory, which the driver does not tell");
}

static void add_beside(struct ask *ask, const struct neap_device_reply *device, json_t *object)
{
	const struct beside *beside = &((struct limiting *)ask->context)->beside;
	uint64_t reserved = device->answer.reserved, limit = device->answer.limit;
	JSON_PUT(object, NUMBER("above_limit", reserved > limit ? reserved - limit : 0),
		 ONLY(beside->known, NUMBER("context", beside->context)),
		 ONLY(beside->known, INTEGER("other", beside->other)));
}

/* Sends the limit to a stopped process, which applies it when it continues. */
static enum neap_status leave(struct ask *ask, struct neap_client *client, const char *name, json_t *process,
			      struct neap_error *err)
{
	double fraction = ((struct limiting *)ask->context)->fraction;
	unsigned char data[32];
	struct neap_field_writer arguments = {.data = data, .capacity = sizeof data};
	(void)process;
	neap_write_f64(&arguments, NEAP_FIELD_FRACTION, fraction);
	neap_write_u64(&arguments, NEAP_FIELD_UNATTENDED, 1);
	enum neap_status status = neap_client_post(client, NEAP_REQUEST_FRACTION, data, arguments.length, err);
	if (!status && !ask->json)
		printf("Process %d (%s) is stopped\n"
		       "  the limit (%g of each device) was left with it: it takes effect as soon as the process "
		       "continues (kill -CONT %d)\n",
		       (int)client->pid, name, fraction, (int)client->pid);
	return status;
}

static enum neap_status limit(struct ask *ask, struct neap_client *client, const char *name, json_t *process,
			      struct neap_error *err)
{
	struct limiting *limiting = ask->context;
	struct neap_fields reply;
	unsigned char data[32];
	struct neap_field_writer arguments = {.data = data, .capacity = sizeof data};
	size_t shown = 0;
	neap_write_f64(&arguments, NEAP_FIELD_FRACTION, limiting->fraction);
	enum neap_status status =
		neap_attached_call(client, NEAP_REQUEST_FRACTION, data, arguments.length, &reply, err);
	if (status)
		return status;
	if (!ask->json)
		printf("Process %d (%s)\n", (int)client->pid, name);
	limiting->sample = (struct neap_sample){0};
	limiting->looked =
		ask->monitor && neap_sample_take(ask->monitor, ask->folder, &limiting->sample, NULL) == NEAP_OK;
	status = ask_show_devices(ask, client->pid, &reply, process, &shown, err);
	neap_sample_fini(&limiting->sample);
	if (status == NEAP_EPROTO)
		return status;
	if (ask_show_lines(ask, &reply, process) + shown == 0 && !ask->json)
		puts("  it has no allocator yet: nothing was limited");
	return status;
}

static void add_fraction(struct ask *ask, json_t *root)
{
	neap_json_set(root, "fraction", json_real(((struct limiting *)ask->context)->fraction));
}

static int run(const struct neap_arguments *arguments)
{
	static const struct ask_verb verb = {.command = "fraction",
					     .process = limit,
					     .stopped = leave,
					     .see = look_beside,
					     .print = print_device,
					     .add = add_beside,
					     .add_all = add_fraction};
	struct limiting limiting = {0};
	struct neap_error err = {0};
	struct ask ask = {.verb = &verb,
			  .shown = NEAP_SHOWN_LIMITED,
			  .needed = NEAP_SHOWN_LIMITED,
			  .json = neap_argument(arguments, "json"),
			  .context = &limiting};
	if (neap_fraction_parse(neap_operand(arguments, 0), &limiting.fraction, &err) != NEAP_OK)
		return neap_misuse(arguments, "%s", err.message);
	return ask_all(&ask, arguments);
}
