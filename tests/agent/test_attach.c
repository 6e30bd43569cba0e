/* Attaching: what it shows, what it leaves alone, what it survives. */
#include "agent_test.h"

#include "proto/page.h"
#include "trace/record.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int64_t page_peak(void)
{
	static struct neap_attached attached;
	struct neap_error err = {0};
	must(neap_page_read(folder, getpid(), &attached, &err), &err);
	assert_int_equal(attached.device_count, 1);
	return attached.devices[0].stats.metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL].peak;
}

/* An allocator that was there before neap_attach: what `neap info` and the page show of it. */
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
	assert_true(neap_fields_string(&reply, NEAP_FIELD_RECORD, text, sizeof text));
	assert_int_equal(access(text, R_OK), 0);
	assert_false(neap_fields_string(&reply, NEAP_FIELD_FAULT, text, sizeof text));
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

/* NEAP_FRACTION applies to allocators without a limit of their own. A malformed one is reported and ignored. */
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
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
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

static void own_observer(void *context, const struct neap_event *event)
{
	(void)event;
	++*(int *)context;
}

/* The program's own observer stays; the counters are published all the same. */
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

/* Ends a child that has a copy of all that its parent holds. It execs another program, so that a leak checker does
 * not report the copy. */
static void leave(int code)
{
	char text[16];
	snprintf(text, sizeof text, "exit %d", code);
	execl("/bin/sh", "sh", "-c", text, NULL);
	_exit(127);
}

/* A forked child is not attached, and cannot touch what belongs to the parent. */
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
		neap_emit(alloc, (struct neap_event){.kind = NEAP_EVENT_MARK, .mark = {.mark = NEAP_MARK_USER}});
		neap_reset_peak_stats(alloc); /* writes to where the page was */
		neap_detach();
#ifndef __SANITIZE_THREAD__ /* it cannot start threads in a child of a process that has several */
		bad |= neap_attach(NULL) != NEAP_OK ? 4 : 0; /* the child may attach for itself */
		bad |= neap_page_read(folder, getpid(), &attached, NULL) != NEAP_OK ? 8 : 0;
		bad |= attached.device_count != 0 ? 16 : 0;
		neap_detach();
		char path[128];
		path_in(path, ".record");
		unlink(path);
#endif
		leave(bad);
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

/* When something writes over the page, the agent disables itself, says why and stops working. */
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
	assert_true(neap_fields_string(&reply, NEAP_FIELD_FAULT, text, sizeof text));
	assert_non_null(strstr(text, "statistics page"));
	assert_int_equal(neap_attach_state(&err), NEAP_EINTERNAL);
	struct neap_stats stats;
	neap_get_stats(alloc, &stats);
	assert_true(stats.metric[NEAP_METRIC_RESERVED_BYTES][0].current >= (int64_t)(8 * MIB)); /* not cleared */
	neap_client_close(&client);
	neap_alloc_destroy(alloc);
	neap_detach();
	attach(); /* again */
	neap_detach();
}

/* A runtime folder that is not safely ours is refused; the program continues. */
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
	snprintf(away, sizeof away, "%s.away", folder);
	assert_int_equal(rename(folder, away), 0);
	assert_int_equal(symlink(away, folder), 0);
	assert_int_equal(neap_attach(&err), NEAP_EPERM);
	assert_non_null(strstr(err.message, folder));
	unlink(folder);
	assert_int_equal(rename(away, folder), 0);
	if (geteuid() == 0) {
		assert_int_equal(chown(folder, 65534, 65534), 0);
		assert_int_equal(neap_attach(&err), NEAP_EPERM);
		assert_non_null(strstr(err.message, "belongs to user 65534"));
		assert_int_equal(chown(folder, 0, 0), 0);
	}
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

/* Files that an earlier process of this PID left are replaced. */
static void stale_files_are_replaced(void **state)
{
	(void)state;
	static const char *const suffixes[] = {".sock", ".page", ".record", ".page-new"};
	struct neap_client client;
	struct neap_fields reply;
	for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
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
	snprintf(path, sizeof path, "%s/record.%d", base, (int)getpid());
	assert_string_equal(attached.record_path, path);
	assert_int_equal(access(path, R_OK), 0);
	neap_alloc_destroy(alloc);
	neap_detach();
	unlink(path);
	/* If the run's folder is missing the process is not attached, and works as usual. */
	setenv("NEAP_RUN_DIR", "/nowhere/at/all", 1);
	alloc = make_alloc();
	assert_int_equal(neap_attach_state(&err), NEAP_ENOENT);
	neap_alloc_destroy(alloc);
	unsetenv("NEAP_ATTACH");
	unsetenv("NEAP_RUN_DIR");
	unsetenv("NEAP_RUN_ID");
}

static void on_signal(int number) { (void)number; }

/* The agent's thread takes none of the host's signals. */
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
	assert_true(sigismember(&pending, SIGUSR1)); /* no other thread could take it */
	int number;
	sigwait(&one, &number);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	neap_detach();
}

/* The page's figures are recorded too: when an allocator joins, when one leaves, at a detach. */
static void page_is_recorded(void **state)
{
	(void)state;
	struct neap_event event = {0};
	attach();
	assert_int_equal(recorded(NEAP_EVENT_PAGE, &event), 0);
	struct neap_alloc *alloc = make_alloc();
	assert_int_equal(recorded(NEAP_EVENT_PAGE, &event), 1);
	assert_int_equal(event.page.context_bytes, neap_device_context_bytes(device));
	assert_int_equal(event.page.peak_allocated_bytes + event.page.peak_reserved_bytes, 0);
	assert_int_not_equal(event.page.device_uuid, 0);
	neap_free(alloc, take(alloc, 20 * MIB));
	neap_alloc_destroy(alloc);
	assert_int_equal(recorded(NEAP_EVENT_PAGE, &event), 2);
	assert_int_equal(event.page.peak_allocated_bytes, 20 * MIB);
	assert_true(event.page.peak_reserved_bytes >= 20 * MIB);
	alloc = make_alloc();
	take(alloc, 4 * MIB);
	neap_detach();
	assert_int_equal(recorded(NEAP_EVENT_PAGE, &event), 4);
	assert_int_equal(event.page.peak_allocated_bytes, 4 * MIB);
	neap_alloc_destroy(alloc);
}

static const char *program; /* the path of this program */

/* Run as a program of its own: at its exit the last figures of another allocator are recorded. */
static int publish_and_exit(void)
{
	struct neap_published counters = {.device_uuid = "0123456789abcde", .context_bytes = 7};
	struct neap_stat *peak = &counters.stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL];
	if (neap_attach(NULL) != NEAP_OK || neap_external_publish(&counters, NULL) != NEAP_OK)
		return 1;
	peak->peak = 12345;
	return neap_external_publish(&counters, NULL) != NEAP_OK;
}

static void exit_is_recorded(void **state)
{
	(void)state;
	struct neap_record record;
	char path[128];
	int status = -1;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		execl(program, "test_attach", "publish", NULL); /* not /proc/self/exe, which may be valgrind */
		_exit(127);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	snprintf(path, sizeof path, "%s/%d.record", folder, (int)child);
	assert_int_equal(neap_record_read(path, &record, NULL), NEAP_OK);
	unlink(path);
	assert_int_equal(record.journal_count, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(record.journal[i].kind, NEAP_EVENT_PAGE);
		assert_int_equal(record.journal[i].page.context_bytes, 7);
		assert_int_equal(record.journal[i].page.peak_reserved_bytes, i ? 12345 : 0);
		assert_string_equal(neap_record_name(&record, record.journal[i].page.device_uuid),
				    "GPU-30313233-3435-3637-3839-616263646500");
	}
	neap_record_fini(&record);
}

int main(int argc, char **argv)
{
	program = argv[0];
	if (argc > 1 && !strcmp(argv[1], "publish"))
		return publish_and_exit();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attached_process_is_seen),  cmocka_unit_test(fraction_by_environment),
		cmocka_unit_test(own_observer_is_kept),      cmocka_unit_test(fork_drops_the_agent),
		cmocka_unit_test(damage_disables),           cmocka_unit_test(unsafe_folders),
		cmocka_unit_test(no_room_for_the_recording), cmocka_unit_test(stale_files_are_replaced),
		cmocka_unit_test(environment_decides),       cmocka_unit_test(signals_are_the_hosts),
		cmocka_unit_test(page_is_recorded),          cmocka_unit_test(exit_is_recorded),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
