/* The agent in a process with allocators on the simulator: asked through its own socket by a client in the same
 * process (the server is another thread, so that nothing is different from a client outside). */
#include "base/process.h"
#include "device/driver.h"
#include "neap/neap.h"
#include "neap/train.h"
#include "proto/client.h"
#include "proto/page.h"
#include "trace/record.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1ull << 20)

static char base[64], folder[80];
static struct neap_driver *driver;
static struct neap_device *device;

static void path_in(char text[128], const char *suffix)
{
	snprintf(text, 128, "%s/%d%s", folder, (int)getpid(), suffix);
}

static bool exists(const char *suffix)
{
	char path[128];
	path_in(path, suffix);
	return access(path, F_OK) == 0;
}

static void must(enum neap_status status, const struct neap_error *err)
{
	if (status != NEAP_OK)
		fail_msg("%s: %s", neap_status_name(status), err->message);
}

static struct neap_alloc *make_alloc(void)
{
	struct neap_alloc *alloc = NULL;
	struct neap_error err = {0};
	must(neap_alloc_create(device, NULL, &alloc, &err), &err);
	return alloc;
}

static uint64_t take(struct neap_alloc *alloc, size_t bytes)
{
	uint64_t address = 0;
	struct neap_error err = {0};
	must(neap_malloc(alloc, bytes, NULL, &address, &err), &err);
	return address;
}

static void attach(void)
{
	struct neap_error err = {0};
	must(neap_attach(&err), &err);
	assert_int_equal(neap_attach_state(&err), NEAP_OK);
}

static void ask(struct neap_client *client, enum neap_request request, uint64_t force, struct neap_fields *ret_reply)
{
	unsigned char data[32];
	struct neap_field_writer writer = {.data = data, .room = sizeof(data)};
	struct neap_error err = {0};
	neap_write_u64(&writer, NEAP_FIELD_FORCE, force);
	must(neap_client_call(client, request, data, writer.length, ret_reply, &err), &err);
}

static enum neap_status ask_fraction(struct neap_client *client, double fraction, struct neap_fields *ret_reply,
				     struct neap_error *err)
{
	unsigned char data[32];
	struct neap_field_writer writer = {.data = data, .room = sizeof(data)};
	neap_write_f64(&writer, NEAP_FIELD_FRACTION, fraction);
	return neap_client_call(client, NEAP_REQUEST_FRACTION, data, writer.length, ret_reply, err);
}

static void open_client(struct neap_client *client)
{
	struct neap_error err = {0};
	must(neap_client_open(folder, getpid(), 0, client, &err), &err);
}

static uint64_t number_of(const struct neap_fields *reply, size_t device_index, unsigned field)
{
	const void *bytes;
	size_t length;
	struct neap_fields group;
	uint64_t value = 0;
	assert_true(neap_fields_bytes(reply, NEAP_FIELD_DEVICE, device_index, &bytes, &length));
	assert_int_equal(neap_fields_open(bytes, length, &group, NULL), NEAP_OK);
	if (!neap_fields_u64(&group, field, &value))
		fail_msg("field %u is missing", field);
	return value;
}

static int64_t page_peak(void)
{
	static struct neap_attached attached;
	struct neap_error err = {0};
	must(neap_page_read(folder, getpid(), &attached, &err), &err);
	assert_int_equal(attached.device_count, 1);
	return attached.devices[0].stats.metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL].peak;
}

static int64_t page_reserved(void)
{
	static struct neap_attached attached;
	struct neap_published published;
	struct neap_error err = {0};
	must(neap_page_read(folder, getpid(), &attached, &err), &err);
	if (!neap_attached_device(&attached, neap_device_info(device)->uuid, &published))
		return -1;
	return published.stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].current;
}

/* The newest event of this kind in the process's recording; its count. */
static size_t recorded(uint16_t kind, struct neap_event *ret_event)
{
	static struct neap_record record;
	char path[128];
	struct neap_error err = {0};
	size_t count = 0;
	path_in(path, ".record");
	must(neap_record_read(path, &record, &err), &err);
	for (size_t i = 0; i < record.journal_count; i++) {
		if (record.journal[i].kind != kind)
			continue;
		*ret_event = record.journal[i];
		count++;
	}
	neap_record_fini(&record);
	return count;
}

/* An allocator that was there before neap_attach, and what info and the page say of it. */
static void attached_process_is_seen(void **state)
{
	(void)state;
	struct neap_client client;
	struct neap_fields reply;
	char text[256];
	uint64_t pid = 0;
	struct neap_alloc *alloc = make_alloc();
	uint64_t block = take(alloc, 4 * MIB);
	assert_int_equal(neap_attach_state(NULL), NEAP_ESTATE);
	assert_null(neap_attach_observer());
	attach();
	attach(); /* again does nothing */
	assert_non_null(neap_attach_observer());
	open_client(&client);
	ask(&client, NEAP_REQUEST_INFO, 0, &reply);
	assert_true(neap_fields_u64(&reply, NEAP_FIELD_PID, &pid) && pid == (uint64_t)getpid());
	assert_true(neap_fields_string(&reply, NEAP_FIELD_RECORD, text, sizeof(text)));
	assert_int_equal(access(text, R_OK), 0);
	assert_false(neap_fields_string(&reply, NEAP_FIELD_FAULT, text, sizeof(text)));
	uint64_t reserved = number_of(&reply, 0, NEAP_FIELD_RESERVED);
	assert_true(reserved >= 4 * MIB);
	assert_true(number_of(&reply, 0, NEAP_FIELD_ALLOCATED) >= 4 * MIB);
	assert_true((uint64_t)page_reserved() == reserved);
	neap_client_close(&client);
	neap_free(alloc, block);
	neap_alloc_destroy(alloc);
	assert_int_equal(page_reserved(), -1);
	neap_detach();
	assert_false(exists(".sock"));
	assert_false(exists(".page"));
	assert_true(exists(".record"));
	neap_detach();
}

static void clear_gives_memory_back(void **state)
{
	(void)state;
	struct neap_client client;
	struct neap_fields reply;
	struct neap_event event = {0};
	attach();
	struct neap_alloc *alloc = make_alloc();
	uint64_t live = take(alloc, 2 * MIB), cached = take(alloc, 8 * MIB);
	memset((void *)live, 0x5a, 2 * MIB); /* the simulator's addresses are the host's */
	neap_free(alloc, cached);
	assert_true(page_reserved() >= (int64_t)(10 * MIB));
	open_client(&client);
	ask(&client, NEAP_REQUEST_CLEAR, 0, &reply);
	uint64_t freed = number_of(&reply, 0, NEAP_FIELD_FREED);
	assert_true(freed >= 8 * MIB);
	assert_true(number_of(&reply, 0, NEAP_FIELD_RESERVED_BEFORE) ==
		    number_of(&reply, 0, NEAP_FIELD_RESERVED) + freed);
	assert_true(number_of(&reply, 0, NEAP_FIELD_FREE) == number_of(&reply, 0, NEAP_FIELD_FREE_BEFORE) + freed);
	assert_true(number_of(&reply, 0, NEAP_FIELD_NANOSECONDS) > 0);
	assert_true((uint64_t)page_reserved() == number_of(&reply, 0, NEAP_FIELD_RESERVED));
	assert_int_equal(recorded(NEAP_EVENT_CLEANUP, &event), 1);
	assert_int_equal(event.block, NEAP_CLEANUP_REQUEST);
	assert_true(event.size == freed);
	ask(&client, NEAP_REQUEST_CLEAR, 0, &reply);
	assert_int_equal(number_of(&reply, 0, NEAP_FIELD_FREED), 0);
	for (size_t i = 0; i < 2 * MIB; i++)
		assert_int_equal(((unsigned char *)live)[i], 0x5a);
	neap_client_close(&client);
	neap_alloc_destroy(alloc);
	neap_detach();
}

/* A limit below what is reserved empties the cache; below what is live, growth fails with an error that names it. */
static void fraction_limits(void **state)
{
	(void)state;
	struct neap_client client;
	struct neap_fields reply;
	struct neap_error err = {0};
	struct neap_event event = {0};
	uint64_t total = neap_device_info(device)->total_bytes, block = 0;
	char limit[64];
	attach();
	struct neap_alloc *alloc = make_alloc();
	uint64_t live = take(alloc, 4 * MIB);
	neap_free(alloc, take(alloc, 8 * MIB));
	open_client(&client);
	must(ask_fraction(&client, 0.5, &reply, &err), &err);
	assert_true(number_of(&reply, 0, NEAP_FIELD_LIMIT_BEFORE) == UINT64_MAX);
	assert_true(number_of(&reply, 0, NEAP_FIELD_LIMIT) == total / 2);
	assert_int_equal(number_of(&reply, 0, NEAP_FIELD_EMPTIED), 0);
	assert_int_equal(number_of(&reply, 0, NEAP_FIELD_FREED), 0);
	assert_int_equal(recorded(NEAP_EVENT_CLEANUP, &event), 0);
	double small = (double)(6 * MIB) / (double)total;
	must(ask_fraction(&client, small, &reply, &err), &err);
	uint64_t freed = number_of(&reply, 0, NEAP_FIELD_FREED);
	assert_true(freed >= 8 * MIB);
	assert_int_equal(number_of(&reply, 0, NEAP_FIELD_EMPTIED), 1);
	assert_true(number_of(&reply, 0, NEAP_FIELD_LIMIT_BEFORE) == total / 2);
	assert_true(number_of(&reply, 0, NEAP_FIELD_RESERVED_BEFORE) ==
		    number_of(&reply, 0, NEAP_FIELD_RESERVED) + freed);
	assert_true(number_of(&reply, 0, NEAP_FIELD_FREE) == number_of(&reply, 0, NEAP_FIELD_FREE_BEFORE) + freed);
	assert_true(number_of(&reply, 0, NEAP_FIELD_NANOSECONDS) > 0);
	assert_int_equal(recorded(NEAP_EVENT_CLEANUP, &event), 1);
	assert_true(event.size == freed && event.block == NEAP_CLEANUP_REQUEST);
	assert_int_equal(neap_malloc(alloc, 8 * MIB, NULL, &block, &err), NEAP_EOOM);
	snprintf(limit, sizeof(limit), "limit %.2f MiB", (double)(uint64_t)(small * (double)total) / (double)MIB);
	if (!strstr(err.message, limit))
		fail_msg("'%s' does not say '%s'", err.message, limit);
	/* Nothing else is a fraction, and what is in force stays. */
	static const double wrong[] = {0, -0.5, 1.0001, 0.0 / 0.0, 1.0 / 0.0};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(ask_fraction(&client, wrong[i], &reply, &err), NEAP_EINVAL);
	assert_int_equal(neap_client_call(&client, NEAP_REQUEST_FRACTION, NULL, 0, &reply, &err), NEAP_EINVAL);
	assert_true(neap_get_fraction(alloc) == small);
	must(ask_fraction(&client, 1, &reply, &err), &err);
	assert_true(number_of(&reply, 0, NEAP_FIELD_LIMIT) == UINT64_MAX);
	neap_free(alloc, take(alloc, 8 * MIB));
	neap_free(alloc, live);
	neap_client_close(&client);
	neap_alloc_destroy(alloc);
	neap_detach();
}

/* NEAP_FRACTION is for allocators that nobody limited; one that makes no sense is told, and harms nothing. */
static void fraction_by_environment(void **state)
{
	(void)state;
	static struct neap_attached attached;
	static const char *const wrong[] = {"0", "-1", "1.5", "half", "0.5x", "nan", " "};
	struct neap_alloc_options options = {.fraction = 0.75};
	struct neap_error err = {0};
	struct neap_client client;
	struct neap_fields reply;
	struct neap_alloc *limited = NULL;
	setenv("NEAP_FRACTION", "0.25", 1);
	struct neap_alloc *alloc = make_alloc(); /* not attached */
	must(neap_alloc_create(device, &options, &limited, &err), &err);
	assert_true(neap_get_fraction(alloc) == 0.25);
	assert_true(neap_get_fraction(limited) == 0.75);
	neap_alloc_destroy(limited);
	neap_alloc_destroy(alloc);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		setenv("NEAP_FRACTION", wrong[i], 1);
		attach();
		alloc = make_alloc();
		assert_true(neap_get_fraction(alloc) == 1);
		assert_int_equal(neap_attach_state(&err), NEAP_EPARSE);
		assert_non_null(strstr(err.message, "NEAP_FRACTION"));
		must(neap_page_read(folder, getpid(), &attached, &err), &err);
		assert_non_null(strstr(attached.note, wrong[i]));
		open_client(&client);
		ask(&client, NEAP_REQUEST_CLEAR, 0, &reply); /* the agent works */
		neap_client_close(&client);
		neap_free(alloc, take(alloc, MIB));
		neap_alloc_destroy(alloc);
		unsetenv("NEAP_FRACTION");
		alloc = make_alloc();
		assert_int_equal(neap_attach_state(&err), NEAP_OK);
		must(neap_page_read(folder, getpid(), &attached, &err), &err);
		assert_string_equal(attached.note, "");
		neap_alloc_destroy(alloc);
		neap_detach();
	}
}

/* During a graph capture nothing may be given back: that device's part is refused with the reason, and nothing
 * changes. */
static void capture_refuses_its_part(void **state)
{
	(void)state;
	const struct neap_cuda *cuda = neap_driver_cuda(driver);
	struct neap_client client;
	struct neap_fields reply;
	struct neap_device_guard guard;
	CUstream stream;
	CUgraph graph;
	uint64_t block;
	attach();
	struct neap_alloc *alloc = make_alloc();
	neap_free(alloc, take(alloc, 8 * MIB));
	must(neap_device_enter(device, &guard, NULL), &(struct neap_error){0});
	assert_int_equal(cuda->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	assert_int_equal(neap_malloc(alloc, MIB, stream, &block, NULL), NEAP_OK);
	assert_int_equal(cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	open_client(&client);
	ask(&client, NEAP_REQUEST_CLEAR, 0, &reply);
	assert_int_equal(number_of(&reply, 0, NEAP_FIELD_STATUS), NEAP_ESTATE);
	assert_true(number_of(&reply, 0, NEAP_FIELD_RESERVED) >= 9 * MIB);
	/* A limit is in force all the same. */
	must(ask_fraction(&client, 0.01, &reply, &(struct neap_error){0}), &(struct neap_error){0});
	assert_int_equal(number_of(&reply, 0, NEAP_FIELD_STATUS), NEAP_ESTATE);
	assert_true(number_of(&reply, 0, NEAP_FIELD_LIMIT) < 9 * MIB);
	assert_true(neap_get_fraction(alloc) == 0.01);
	assert_int_equal(neap_set_fraction(alloc, 1, NULL), NEAP_OK);
	assert_int_equal(cuda->cuStreamEndCapture(stream, &graph), 0);
	cuda->cuGraphDestroy(graph);
	ask(&client, NEAP_REQUEST_CLEAR, 0, &reply);
	assert_true(number_of(&reply, 0, NEAP_FIELD_FREED) >= 8 * MIB);
	neap_client_close(&client);
	neap_free(alloc, block);
	assert_int_equal(cuda->cuStreamDestroy(stream), 0);
	neap_device_leave(&guard);
	neap_alloc_destroy(alloc);
	neap_detach();
}

static void peaks_are_reset(void **state)
{
	(void)state;
	struct neap_client client;
	struct neap_fields reply;
	attach();
	struct neap_alloc *alloc = make_alloc();
	neap_free(alloc, take(alloc, 8 * MIB));
	open_client(&client);
	ask(&client, NEAP_REQUEST_RESET_PEAK, 0, &reply);
	assert_true(number_of(&reply, 0, NEAP_FIELD_MAX_ALLOCATED) >= 8 * MIB);
	ask(&client, NEAP_REQUEST_INFO, 0, &reply);
	assert_int_equal(number_of(&reply, 0, NEAP_FIELD_MAX_ALLOCATED), 0);
	neap_client_close(&client);
	neap_alloc_destroy(alloc);
	neap_detach();
}

static uint64_t release(void *context, bool force)
{
	*(int *)context += force ? 1 : 100;
	return 1000;
}

static void force_calls_the_program(void **state)
{
	(void)state;
	struct neap_client client;
	struct neap_fields reply;
	static int calls;
	uint64_t bytes = 0;
	attach();
	assert_int_equal(neap_attach_on_clear(NULL, NULL), NEAP_EINVAL);
	for (int i = 0; i < 8; i++)
		assert_int_equal(neap_attach_on_clear(release, &calls), NEAP_OK);
	assert_int_equal(neap_attach_on_clear(release, &calls), NEAP_ENOSPC);
	open_client(&client);
	ask(&client, NEAP_REQUEST_CLEAR, 0, &reply);
	assert_false(neap_fields_u64(&reply, NEAP_FIELD_CALLBACK_BYTES, &bytes));
	assert_int_equal(calls, 0);
	ask(&client, NEAP_REQUEST_CLEAR, 1, &reply);
	assert_true(neap_fields_u64(&reply, NEAP_FIELD_CALLBACK_BYTES, &bytes) && bytes == 8000);
	assert_int_equal(calls, 8);
	neap_client_close(&client);
	neap_detach();
}

static void own_observer(void *context, const struct neap_event *event)
{
	(void)event;
	++*(int *)context;
}

/* A program's own observer stays; our counters are published all the same. */
static void own_observer_is_kept(void **state)
{
	(void)state;
	int events = 0;
	struct neap_observer observer = {.event = own_observer, .context = &events};
	struct neap_alloc_options options = {.observer = &observer};
	struct neap_alloc *alloc = NULL;
	struct neap_error err = {0};
	attach();
	must(neap_alloc_create(device, &options, &alloc, &err), &err);
	neap_free(alloc, take(alloc, MIB));
	assert_true(events > 0);
	assert_true(page_reserved() > 0);
	neap_detach();
	int before = events;
	neap_free(alloc, take(alloc, MIB));
	assert_true(events > before);
	neap_alloc_destroy(alloc);
}

/* The child of a fork is not attached and cannot touch what is the parent's. */
static void fork_drops_the_agent(void **state)
{
	(void)state;
	struct neap_client client, second;
	struct neap_fields reply;
	struct neap_event event;
	attach();
	struct neap_alloc *alloc = make_alloc();
	take(alloc, 4 * MIB);
	neap_free(alloc, take(alloc, 16 * MIB));
	int64_t reserved = page_reserved(), peak = page_peak();
	open_client(&client);
	ask(&client, NEAP_REQUEST_HELLO, 0, &reply);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		static struct neap_attached attached;
		int bad = 0;
		(void)attached;
		bad |= neap_attach_state(NULL) != NEAP_ESTATE ? 1 : 0;
		bad |= neap_attach_observer() != NULL ? 2 : 0;
		neap_emit(alloc, (struct neap_event){.kind = NEAP_EVENT_MARK, .address = NEAP_MARK_USER});
		neap_reset_peak_stats(alloc); /* writes to where the page was */
		neap_detach();
#ifndef __SANITIZE_THREAD__ /* which cannot start threads in the child of a process with several */
		bad |= neap_attach(NULL) != NEAP_OK ? 4 : 0; /* for itself it may */
		bad |= neap_page_read(folder, getpid(), &attached, NULL) != NEAP_OK ? 8 : 0;
		bad |= attached.device_count != 0 ? 16 : 0;
		neap_detach();
		char path[128];
		path_in(path, ".record");
		unlink(path);
#endif
		_exit(bad);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(exists(".sock"));
	assert_true(page_reserved() == reserved);
	assert_true(peak >= (int64_t)(20 * MIB) && page_peak() == peak);
	assert_int_equal(recorded(NEAP_EVENT_MARK, &event), 0);
	ask(&client, NEAP_REQUEST_INFO, 0, &reply);
	open_client(&second);
	ask(&second, NEAP_REQUEST_INFO, 0, &reply);
	neap_client_close(&second);
	neap_client_close(&client);
	neap_alloc_destroy(alloc);
	neap_detach();
}

/* Something wrote over the page: the agent disables itself, says why, and does nothing any more. */
static void damage_disables(void **state)
{
	(void)state;
	struct neap_client client;
	struct neap_fields reply;
	struct neap_error err = {0};
	char path[128], text[256] = "";
	attach();
	struct neap_alloc *alloc = make_alloc();
	neap_free(alloc, take(alloc, 8 * MIB));
	path_in(path, ".page");
	FILE *page = fopen(path, "r+");
	assert_non_null(page);
	assert_int_equal(fputs("garbage", page) < 0, 0);
	fclose(page);
	open_client(&client);
	assert_int_equal(neap_client_call(&client, NEAP_REQUEST_CLEAR, NULL, 0, &reply, &err), NEAP_ESTATE);
	assert_non_null(strstr(err.message, "disabled itself"));
	ask(&client, NEAP_REQUEST_HELLO, 0, &reply);
	assert_true(neap_fields_string(&reply, NEAP_FIELD_FAULT, text, sizeof(text)));
	assert_non_null(strstr(text, "statistics page"));
	assert_int_equal(neap_attach_state(&err), NEAP_EINTERNAL);
	struct neap_stats stats;
	neap_get_stats(alloc, &stats);
	assert_true(stats.metric[NEAP_METRIC_RESERVED_BYTES][0].current >= (int64_t)(8 * MIB)); /* not cleared */
	neap_client_close(&client);
	neap_alloc_destroy(alloc);
	neap_detach();
	attach(); /* anew */
	neap_detach();
}

/* A runtime folder that is not safely ours: refused, and the program goes on. */
static void unsafe_folders(void **state)
{
	(void)state;
	struct neap_error err = {0};
	struct neap_alloc *alloc = make_alloc();
	char away[128];
	assert_int_equal(chmod(folder, 0755), 0);
	assert_int_equal(neap_attach(&err), NEAP_EPERM);
	assert_int_equal(neap_attach_state(&err), NEAP_EPERM);
	assert_int_equal(chmod(folder, 0700), 0);
	snprintf(away, sizeof(away), "%s.away", folder);
	assert_int_equal(rename(folder, away), 0);
	assert_int_equal(symlink(away, folder), 0);
	assert_int_equal(neap_attach(&err), NEAP_EPERM);
	assert_non_null(strstr(err.message, folder));
	unlink(folder);
	assert_int_equal(rename(away, folder), 0);
	neap_free(alloc, take(alloc, MIB));
	attach();
	neap_detach();
	neap_alloc_destroy(alloc);
}

static void no_room_for_the_recording(void **state)
{
	(void)state;
	struct neap_error err = {0};
	struct rlimit before, small = {.rlim_cur = 100000};
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small.rlim_max = before.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	enum neap_status status = neap_attach(&err);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(status, NEAP_ENOSPC);
	assert_false(exists(".page"));
	assert_false(exists(".sock"));
}

/* What an earlier process of this PID left is replaced. */
static void stale_files_are_replaced(void **state)
{
	(void)state;
	static const char *const suffixes[] = {".sock", ".page", ".record", ".page-new"};
	struct neap_client client;
	struct neap_fields reply;
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++) {
		char path[128];
		path_in(path, suffixes[i]);
		unlink(path);
		FILE *file = fopen(path, "w");
		assert_non_null(file);
		fputs("stale", file);
		fclose(file);
	}
	attach();
	open_client(&client);
	ask(&client, NEAP_REQUEST_HELLO, 0, &reply);
	neap_client_close(&client);
	assert_int_equal(page_reserved(), -1);
	neap_detach();
}

/* The environment decides: 0 forbids, 1 attaches at the first allocator and records in the run's folder. */
static void environment_decides(void **state)
{
	(void)state;
	static struct neap_attached attached;
	struct neap_error err = {0};
	char path[128];
	setenv("NEAP_ATTACH", "0", 1);
	assert_int_equal(neap_attach(&err), NEAP_ECANCELED);
	setenv("NEAP_ATTACH", "1", 1);
	setenv("NEAP_RUN_DIR", base, 1);
	setenv("NEAP_RUN_ID", "run-7", 1);
	struct neap_alloc *alloc = make_alloc();
	assert_int_equal(neap_attach_state(&err), NEAP_OK);
	must(neap_page_read(folder, getpid(), &attached, &err), &err);
	assert_string_equal(attached.run_id, "run-7");
	snprintf(path, sizeof(path), "%s/record.%d", base, (int)getpid());
	assert_string_equal(attached.record_path, path);
	assert_int_equal(access(path, R_OK), 0);
	neap_alloc_destroy(alloc);
	neap_detach();
	unlink(path);
	/* A run's folder that is not there: not attached, and nothing else is wrong. */
	setenv("NEAP_RUN_DIR", "/nowhere/at/all", 1);
	alloc = make_alloc();
	assert_int_equal(neap_attach_state(&err), NEAP_ENOENT);
	neap_alloc_destroy(alloc);
	unsetenv("NEAP_ATTACH");
	unsetenv("NEAP_RUN_DIR");
	unsetenv("NEAP_RUN_ID");
}

struct worker {
	pthread_t thread;
	int stop;
};

/* Allocators come, work and go while they are asked. */
static void *work(void *argument)
{
	struct worker *worker = argument;
	struct neap_alloc *steady = make_alloc();
	for (int i = 0; !__atomic_load_n(&worker->stop, __ATOMIC_ACQUIRE); i++) {
		uint64_t block = take(steady, 3 * MIB);
		neap_free(steady, block);
		if (i % 8 == 0) {
			struct neap_alloc *brief = make_alloc();
			neap_free(brief, take(brief, MIB));
			neap_alloc_destroy(brief);
		}
	}
	neap_alloc_destroy(steady);
	return NULL;
}

static void asked_while_working(void **state)
{
	(void)state;
	struct worker worker = {0};
	struct neap_client client;
	struct neap_fields reply;
	attach();
	assert_int_equal(pthread_create(&worker.thread, NULL, work, &worker), 0);
	open_client(&client);
	for (int i = 0; i < 40; i++) {
		static const enum neap_request requests[] = {NEAP_REQUEST_CLEAR, NEAP_REQUEST_INFO,
							     NEAP_REQUEST_RESET_PEAK};
		ask(&client, requests[i % 3], 0, &reply);
	}
	neap_client_close(&client);
	neap_detach(); /* in the middle of it */
	attach();
	__atomic_store_n(&worker.stop, 1, __ATOMIC_RELEASE);
	pthread_join(worker.thread, NULL);
	neap_detach();
}

/* The agent's thread takes none of the host's signals. */
static void on_signal(int number) { (void)number; }

static void signals_are_the_hosts(void **state)
{
	(void)state;
	sigset_t one, before;
	struct neap_client client;
	struct neap_fields reply;
	struct sigaction action = {.sa_handler = on_signal};
	attach();
	sigaction(SIGUSR1, &action, NULL);
	sigemptyset(&one);
	sigaddset(&one, SIGUSR1);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &one, &before), 0);
	kill(getpid(), SIGUSR1);
	open_client(&client);
	ask(&client, NEAP_REQUEST_HELLO, 0, &reply); /* the agent's thread has run since */
	neap_client_close(&client);
	sigset_t pending;
	sigpending(&pending);
	assert_true(sigismember(&pending, SIGUSR1)); /* nobody else could take it */
	int number;
	sigwait(&one, &number);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	neap_detach();
}

static int set_up(void **state)
{
	(void)state;
	char world[128];
	strcpy(base, "/tmp/neap-test-attach-XXXXXX");
	if (!mkdtemp(base))
		return -1;
	snprintf(folder, sizeof(folder), "%s/neap", base);
	setenv("XDG_RUNTIME_DIR", base, 1);
	snprintf(world, sizeof(world), "mem=256MiB,world=attach-%d", (int)getpid());
	setenv("NEAP_SIM", world, 1);
	setenv("NEAP_DEVICE", "sim", 1);
	unsetenv("NEAP_ATTACH");
	unsetenv("NEAP_RUN_DIR");
	unsetenv("NEAP_RUN_ID");
	struct neap_error err = {0};
	if (neap_driver_open(NEAP_BACKEND_DEFAULT, &driver, &err) != NEAP_OK ||
	    neap_device_open(driver, 0, &device, &err) != NEAP_OK) {
		print_error("%s\n", err.message);
		return -1;
	}
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	char path[128];
	neap_device_close(device);
	neap_driver_close(driver);
	path_in(path, ".record");
	unlink(path);
	rmdir(folder);
	return rmdir(base);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attached_process_is_seen), cmocka_unit_test(fraction_limits),
		cmocka_unit_test(fraction_by_environment),  cmocka_unit_test(clear_gives_memory_back),
		cmocka_unit_test(capture_refuses_its_part), cmocka_unit_test(peaks_are_reset),
		cmocka_unit_test(force_calls_the_program),  cmocka_unit_test(own_observer_is_kept),
		cmocka_unit_test(fork_drops_the_agent),     cmocka_unit_test(damage_disables),
		cmocka_unit_test(unsafe_folders),           cmocka_unit_test(no_room_for_the_recording),
		cmocka_unit_test(stale_files_are_replaced), cmocka_unit_test(environment_decides),
		cmocka_unit_test(asked_while_working),      cmocka_unit_test(signals_are_the_hosts),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
