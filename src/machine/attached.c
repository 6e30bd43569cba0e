/* machine/attached.c: see attached.h. */
#include "machine/attached.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "machine/sample.h"
#include "proto/commands.h"
#include "store/json_rows.h"

/* Long enough to empty a large cache on a busy device. */
#define BOUND_NS (NEAP_ATTACHED_BOUND_S * NEAP_NS_PER_S)

#define ENDING_POLLS   200 /* 2 s: on a loaded machine a process takes long to end */
#define ENDING_POLL_NS (10 * NEAP_NS_PER_MS)

static bool is_stopped(pid_t pid)
{
	struct neap_process process;
	return neap_process_read(pid, &process, NULL) == NEAP_OK && (process.state == 'T' || process.state == 't');
}

enum neap_status neap_attached_open(const char *runtime_folder, pid_t pid, struct neap_client *ret_client,
				    bool *ret_stopped, struct neap_error *err)
{
	char name[64];
	struct neap_deadline deadline = neap_deadline_in(neap_clock_system(), BOUND_NS);
	enum neap_status status = neap_client_open(runtime_folder, pid, deadline, ret_client, err);
	if (status && status != NEAP_ESTATE)
		return status;
	neap_sample_name(pid, name);
	bool stopped = !status && is_stopped(pid);
	if (stopped && !ret_stopped) {
		neap_client_close(ret_client);
		return neap_fail(err, NEAP_ETIMEDOUT,
				 "process %d (%.32s) is stopped and cannot answer; nothing was changed. Continue it "
				 "(kill -CONT %d) and ask again",
				 (int)pid, name, (int)pid);
	}
	if (!status) {
		if (ret_stopped)
			*ret_stopped = stopped;
		return status;
	}
	return neap_fail(err, NEAP_ESTATE,
			 "process %d (%.32s) is not attached: its cache cannot be emptied, nor its memory limited, "
			 "from outside; started with 'neap run -- COMMAND' it can",
			 (int)pid, name);
}

/* Waits a while for the process to end: its sockets are closed a moment before. False: it goes on. */
static bool is_ending(pid_t pid)
{
	struct neap_process process;
	for (int polls = 0; polls < ENDING_POLLS; polls++) {
		if (neap_process_read(pid, &process, NULL) != NEAP_OK || process.state == 'Z')
			return true;
		neap_clock_sleep(neap_clock_system(), ENDING_POLL_NS);
	}
	return false;
}

enum neap_status neap_attached_call(struct neap_client *client, enum neap_request request, const void *arguments,
				    size_t length, struct neap_fields *ret_reply, struct neap_error *err)
{
	enum neap_status status = neap_client_call(client, request, arguments, length, ret_reply, err);
	if (status == NEAP_ETIMEDOUT && is_stopped(client->pid))
		return neap_fail(err, status,
				 "process %d was stopped before it answered; what it has not begun by now it will "
				 "not do. Continue it (kill -CONT %d) and ask again",
				 (int)client->pid, (int)client->pid);
	if (status == NEAP_ETIMEDOUT)
		return neap_fail(err, status,
				 "process %d did not answer within %d s; what it has not begun by now it will not do",
				 (int)client->pid, NEAP_ATTACHED_BOUND_S);
	if (status == NEAP_EIO && is_ending(client->pid))
		return neap_fail(err, NEAP_ENOENT, "process %d ended before it answered", (int)client->pid);
	return status;
}

enum neap_status neap_attached_device_status(uint64_t answered)
{
	if (answered > NEAP_EINTERNAL)
		return NEAP_EPROTO;
	return answered == NEAP_ESTATE ? NEAP_EBUSY : (enum neap_status)answered;
}

enum neap_status neap_device_reply_read(const struct neap_fields *reply, size_t n, unsigned needed,
					struct neap_monitor *monitor, struct neap_device_reply *ret_device)
{
	struct neap_device_reply device = {.free_now = NEAP_BYTES_UNKNOWN};
	enum neap_status status = neap_device_answer_read(reply, n, needed, &device.answer);
	if (status)
		return status;
	device.index_known =
		monitor && neap_monitor_find(monitor, device.answer.uuid, &device.index, NULL) == NEAP_OK;
	*ret_device = device;
	return NEAP_OK;
}

json_t *neap_device_reply_json(const struct neap_device_reply *device, unsigned shown)
{
	json_t *object =
		JSON(ONLY(device->index_known, NUMBER("index", device->index)), TEXT("name", device->answer.name));
	for (size_t i = 0; i < neap_device_figure_count; i++) {
		const struct neap_device_figure *figure = &neap_device_figures[i];
		uint64_t value = neap_device_figure(&device->answer, figure);
		if (!(figure->shown & shown))
			continue;
		neap_json_set(object, figure->name,
			      figure->field == NEAP_FIELD_EMPTIED ? json_boolean(value) : neap_json_known(value));
	}
	return object;
}
