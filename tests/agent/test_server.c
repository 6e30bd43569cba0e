/* The agent's server against peers that stall, lie, hang up or come in large numbers. The handler is the test's own.
 */
#include "agent/server.h"
#include "base/clock.h"
#include "base/error.h"
#include "proto/client.h"
#include "proto/commands.h"
#include "proto/socket.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ECHO     77u
#define BOUND_MS 60000 /* guards against a hang: no test waits for it */
#define BOUND_NS (BOUND_MS * NEAP_NS_PER_MS)

static char folder[64];
static struct neap_server server;
static sem_t entered, gate; /* a request of 2000 posts `entered` and waits for `gate` */
static int forbidden;       /* requests of 3000 that were executed */
static int left_behind;     /* of 4000 */
static int failures;        /* written before the thread ends, read after it was joined */

static enum neap_status handle(void *context, unsigned command, const struct neap_fields *arguments,
			       struct neap_field_writer *reply, struct neap_error *err)
{
	uint64_t value = 0;
	(void)context;
	if (command != ECHO)
		return neap_fail(err, NEAP_ENOTSUP, "no request %u", command);
	neap_fields_u64(arguments, 1, &value);
	if (value == 2000) {
		sem_post(&entered);
		sem_wait(&gate);
	}
	forbidden += value == 3000;
	left_behind += value == 4000;
	neap_write_u64(reply, 1, value + 1);
	for (uint64_t i = 0; value == 1000 && i < 8000; i++)
		neap_write_u64(reply, 2, i); /* more than a reply may hold */
	return NEAP_OK;
}

/* The server's clock and the test's: the system's, set forward by as much as the test says (meson.build: --wrap). */
static _Atomic uint64_t forward_ns;
const struct neap_clock *__real_neap_clock_system(void);
const struct neap_clock *__wrap_neap_clock_system(void);

static uint64_t now_forward(void *context)
{
	(void)context;
	return neap_clock_now(__real_neap_clock_system()) + forward_ns;
}

static void sleep_really(void *context, uint64_t ns)
{
	(void)context;
	neap_clock_sleep(__real_neap_clock_system(), ns);
}

const struct neap_clock *__wrap_neap_clock_system(void)
{
	static const struct neap_clock forward = {.now = now_forward, .sleep = sleep_really};
	return &forward;
}

static void failed(void *context, const struct neap_error *err)
{
	(void)context;
	(void)err;
	failures++;
}

static void start(uint64_t bound_ms)
{
	struct sockaddr_un address;
	int folder_fd;
	struct neap_server_options options = {
		.handle = handle, .failed = failed, .bound_ns = bound_ms * NEAP_NS_PER_MS};
	failures = 0;
	assert_int_equal(neap_socket_address(folder, getpid(), &address, &folder_fd, NULL), NEAP_OK);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	unlink(address.sun_path);
	assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(fd, NEAP_SERVER_BACKLOG), 0);
	assert_int_equal(neap_server_start(&server, fd, &options, NULL), NEAP_OK);
}

static void stop(void)
{
	assert_true(neap_server_stop(&server, UINT64_MAX));
	assert_true(neap_server_stop(&server, UINT64_MAX));
}

static void open_client(struct neap_client *client)
{
	struct neap_error err = {0};
	if (neap_client_open(folder, getpid(), neap_deadline_in(neap_clock_system(), BOUND_NS), client, &err) !=
	    NEAP_OK)
		fail_msg("%s", err.message);
}

static enum neap_status try_echo(struct neap_client *client, uint64_t value, struct neap_error *err)
{
	unsigned char data[32];
	struct neap_field_writer writer = {.data = data, .capacity = sizeof data};
	struct neap_fields reply;
	uint64_t got = 0;
	neap_write_u64(&writer, 1, value);
	enum neap_status status = neap_client_call(client, ECHO, data, writer.length, &reply, err);
	if (!status) {
		assert_true(neap_fields_u64(&reply, 1, &got));
		assert_true(got == value + 1);
	}
	return status;
}

static void expect_echo(struct neap_client *client, uint64_t value)
{
	struct neap_error err = {0};
	if (try_echo(client, value, &err) != NEAP_OK)
		fail_msg("%s", err.message);
}

/* Reads until the server closes. The frame before that must be an error that contains these words. */
static void expect_refusal(int fd, enum neap_status status, const char *words)
{
	struct neap_frame frame = {0};
	struct neap_buffer payload = {0};
	struct neap_fields fields;
	struct neap_error err = {0};
	char text[256] = "", byte;
	struct neap_deadline deadline = neap_deadline_in(neap_clock_system(), BOUND_NS);
	if (neap_frame_receive(fd, &frame, &payload, &deadline, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	assert_int_equal(frame.status, status);
	assert_int_equal(neap_fields_open(payload.data, payload.length, &fields, NULL), NEAP_OK);
	assert_true(neap_fields_string(&fields, NEAP_FIELD_ERROR, text, sizeof text));
	if (!strstr(text, words))
		fail_msg("'%s' does not say '%s'", text, words);
	assert_true(recv(fd, &byte, 1, 0) <= 0);
	neap_buffer_fini(&payload);
}

static void requests_are_answered(void **state)
{
	(void)state;
	struct neap_client client;
	struct neap_fields reply;
	struct neap_error err;
	start(BOUND_MS);
	open_client(&client);
	for (uint64_t i = 0; i < 20; i++)
		expect_echo(&client, i);
	assert_int_equal(neap_client_call(&client, NEAP_REQUEST_INFO, NULL, 0, &reply, &err), NEAP_ENOTSUP);
	assert_non_null(strstr(err.message, "no request 2"));
	expect_echo(&client, 5); /* the connection is still good */
	unsigned char data[32];
	struct neap_field_writer writer = {.data = data, .capacity = sizeof data};
	neap_write_u64(&writer, 1, 1000);
	assert_int_equal(neap_client_call(&client, ECHO, data, writer.length, &reply, &err), NEAP_EINTERNAL);
	expect_echo(&client, 6);
	neap_client_close(&client);
	stop();
	assert_int_equal(failures, 0);
}

static void broken_frames_are_refused(void **state)
{
	(void)state;
	struct {
		struct neap_frame frame;
		const char *magic, *words;
		size_t payload;
	} bad[] = {
		{{.version = 9, .command = ECHO}, "NEAP", "version 9", 0},
		{{.version = NEAP_FRAME_VERSION, .command = ECHO, .length = UINT32_MAX},
		 "NEAP",
		 "4294967295 bytes",
		 0},
		{{.version = NEAP_FRAME_VERSION, .command = ECHO, .length = NEAP_SERVER_REQUEST_MAX + 1},
		 "NEAP",
		 "limit",
		 0},
		{{.version = NEAP_FRAME_VERSION, .command = ECHO}, "HTTP", "protocol", 0},
		{{.version = NEAP_FRAME_VERSION, .command = ECHO, .length = 3}, "NEAP", "cut short", 3},
	};
	struct neap_client good, client;
	start(BOUND_MS);
	open_client(&good);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		unsigned char bytes[NEAP_FRAME_HEADER_BYTES + 3] = {0};
		open_client(&client);
		neap_frame_encode(&bad[i].frame, bytes);
		memcpy(bytes, bad[i].magic, 4);
		size_t length = NEAP_FRAME_HEADER_BYTES + bad[i].payload;
		assert_int_equal(send(client.fd, bytes, length, MSG_NOSIGNAL), length);
		expect_refusal(client.fd, NEAP_EPROTO, bad[i].words);
		neap_client_close(&client);
		expect_echo(&good, i);
	}
	neap_client_close(&good);
	stop();
	assert_int_equal(failures, 0);
}

/* Peers that stop in the middle of a frame take every place. The time limit frees the places, and the waiting peers
 * are served. It may strike any slow peer, even this test. */
static void stalled_peers_are_dropped(void **state)
{
	(void)state;
	struct neap_client stalled[NEAP_SERVER_CLIENTS], good;
	struct neap_frame frame = {.version = NEAP_FRAME_VERSION, .command = ECHO, .length = 16};
	unsigned char header[NEAP_FRAME_HEADER_BYTES];
	struct neap_error err;
	char byte;
	neap_frame_encode(&frame, header);
	start(30);
	for (size_t i = 0; i < NEAP_SERVER_CLIENTS; i++) {
		open_client(&stalled[i]);
		size_t part = i % 2 ? sizeof header : sizeof header / 2;
		ssize_t sent = send(stalled[i].fd, header, part, MSG_NOSIGNAL);
		assert_true(sent == (ssize_t)part || errno == EPIPE);
	}
	for (open_client(&good); try_echo(&good, 1, &err) != NEAP_OK; open_client(&good))
		neap_client_close(&good);
	for (size_t i = 0; i < NEAP_SERVER_CLIENTS; i++) {
		/* closed by the server, which may have left bytes unread */
		ssize_t got = recv(stalled[i].fd, &byte, 1, 0);
		assert_true(got == 0 || (got < 0 && errno == ECONNRESET));
		neap_client_close(&stalled[i]);
	}
	neap_client_close(&good);
	stop();
	assert_int_equal(failures, 0);
}

/* Nobody is harmed by a peer that hangs up after any byte of a request, or without reading the reply. */
static void hanging_up_anywhere(void **state)
{
	(void)state;
	struct neap_client good, client;
	unsigned char bytes[NEAP_FRAME_HEADER_BYTES + 16];
	struct neap_field_writer writer = {.data = bytes + NEAP_FRAME_HEADER_BYTES, .capacity = 16};
	struct neap_frame frame = {.version = NEAP_FRAME_VERSION, .command = ECHO, .length = 16};
	neap_write_u64(&writer, 1, 3);
	neap_frame_encode(&frame, bytes);
	start(BOUND_MS);
	open_client(&good);
	for (size_t cut = 0; cut <= sizeof bytes; cut++) {
		open_client(&client);
		assert_int_equal(send(client.fd, bytes, cut, MSG_NOSIGNAL), cut);
		neap_client_close(&client);
	}
	expect_echo(&good, 8);
	neap_client_close(&good);
	stop();
	assert_int_equal(failures, 0);
}

#define REQUEST_BYTES (NEAP_FRAME_HEADER_BYTES + 32)

static void encode_request(unsigned char bytes[REQUEST_BYTES], uint64_t value, bool unattended)
{
	struct neap_field_writer writer = {.data = bytes + NEAP_FRAME_HEADER_BYTES, .capacity = 32};
	neap_write_u64(&writer, 1, value);
	neap_write_u64(&writer, NEAP_FIELD_UNATTENDED, unattended);
	struct neap_frame frame = {.version = NEAP_FRAME_VERSION, .command = ECHO, .length = (uint32_t)writer.length};
	neap_frame_encode(&frame, bytes);
}

static void send_request(int fd, uint64_t value, bool unattended)
{
	unsigned char bytes[REQUEST_BYTES];
	encode_request(bytes, value, unattended);
	assert_int_equal(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
}

static void expect_answer(int fd, uint64_t value)
{
	struct neap_frame frame = {0};
	struct neap_buffer payload = {0};
	struct neap_fields fields;
	struct neap_error err = {0};
	struct neap_deadline deadline = neap_deadline_in(neap_clock_system(), BOUND_NS);
	uint64_t got = 0;
	if (neap_frame_receive(fd, &frame, &payload, &deadline, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	assert_int_equal(frame.status, NEAP_OK);
	assert_int_equal(neap_fields_open(payload.data, payload.length, &fields, NULL), NEAP_OK);
	assert_true(neap_fields_u64(&fields, 1, &got) && got == value + 1);
	neap_buffer_fini(&payload);
}

/* As many peers as there are places send half a frame, and then as many honest peers send requests at once. The
 * server answers the honest ones long before the time limit would free the places, and closes the silent peers that
 * were in the way. */
static void many_at_once(void **state)
{
	(void)state;
	struct neap_client silent[NEAP_SERVER_CLIENTS], honest[NEAP_SERVER_CLIENTS];
	struct neap_frame frame = {.version = NEAP_FRAME_VERSION, .command = ECHO, .length = 16};
	unsigned char header[NEAP_FRAME_HEADER_BYTES];
	char byte;
	neap_frame_encode(&frame, header);
	start(10000); /* waiting peers give way after 2 s */
	for (size_t i = 0; i < NEAP_SERVER_CLIENTS; i++) {
		open_client(&silent[i]);
		assert_int_equal(send(silent[i].fd, header, i % sizeof header, MSG_NOSIGNAL), i % sizeof header);
	}
	for (size_t i = 0; i < NEAP_SERVER_CLIENTS; i++) {
		open_client(&honest[i]);
		send_request(honest[i].fd, i, false);
	}
	for (size_t i = 0; i < NEAP_SERVER_CLIENTS; i++)
		expect_answer(honest[i].fd, i);
	for (size_t i = 0; i < NEAP_SERVER_CLIENTS; i++)
		expect_echo(&honest[i], i); /* and they keep their places */
	for (size_t i = 0; i < NEAP_SERVER_CLIENTS; i++) {
		assert_int_equal(recv(silent[i].fd, &byte, 1, MSG_DONTWAIT), 0);
		neap_client_close(&silent[i]);
		neap_client_close(&honest[i]);
	}
	stop();
	assert_int_equal(failures, 0);
}

/* Every place is taken, and another peer connects. The peer that has been idle longest has sent its request since the
 * server last looked. The server itself kept it waiting, so the next one has to go. Requests hold the server up, so
 * that it sees all this in exactly this order. */
static void waiting_bytes_keep_a_place(void **state)
{
	(void)state;
	struct neap_client clients[NEAP_SERVER_CLIENTS], late;
	unsigned char bytes[REQUEST_BYTES];
	char byte;
	start(10000); /* an idle one gives way after 2 s */
	for (uint64_t i = 0; i < NEAP_SERVER_CLIENTS; i++) {
		open_client(&clients[i]);
		expect_echo(&clients[i], i);
	}
	encode_request(bytes, 2000, false);
	assert_int_equal(send(clients[0].fd, bytes, NEAP_FRAME_HEADER_BYTES, MSG_NOSIGNAL), NEAP_FRAME_HEADER_BYTES);
	expect_echo(&clients[2], 7); /* by now the server has read that header, and client 1 is idle longest */
	send_request(clients[3].fd, 2000, false);
	sem_wait(&entered);
	forward_ns += 3 * NEAP_NS_PER_S;
	open_client(&late);
	send_request(late.fd, 9, false);
	assert_int_equal(send(clients[0].fd, bytes + NEAP_FRAME_HEADER_BYTES, REQUEST_BYTES - NEAP_FRAME_HEADER_BYTES,
			      MSG_NOSIGNAL),
			 REQUEST_BYTES - NEAP_FRAME_HEADER_BYTES);
	sem_post(&gate);
	sem_wait(&entered); /* it has seen the new connection and client 0's request */
	send_request(clients[1].fd, 5, false);
	sem_post(&gate);
	expect_answer(clients[1].fd, 5);
	expect_answer(clients[0].fd, 2000);
	expect_answer(clients[3].fd, 2000);
	expect_answer(late.fd, 9);
	assert_int_equal(recv(clients[4].fd, &byte, 1, 0), 0); /* gave way */
	neap_client_close(&late);
	for (size_t i = 0; i < NEAP_SERVER_CLIENTS; i++)
		neap_client_close(&clients[i]);
	stop();
	assert_int_equal(failures, 0);
}

/* A peer sends a whole request and gives up while the server is held up. The server does not execute it afterwards,
 * unless the request says that nobody waits for it. */
static void given_up_requests_are_not_executed(void **state)
{
	(void)state;
	struct neap_client slow, gone, left, good;
	assert_int_equal(sem_init(&entered, 0, 0), 0);
	assert_int_equal(sem_init(&gate, 0, 0), 0);
	forbidden = left_behind = 0;
	start(BOUND_MS);
	open_client(&slow);
	send_request(slow.fd, 2000, false);
	assert_int_equal(sem_wait(&entered), 0);
	open_client(&gone);
	send_request(gone.fd, 3000, false);
	neap_client_close(&gone);
	open_client(&left);
	send_request(left.fd, 4000, true);
	neap_client_close(&left);
	open_client(&good);
	sem_post(&gate);
	for (uint64_t i = 0; i < 4; i++)
		expect_echo(&good, i); /* it came after the peer that is gone */
	neap_client_close(&good);
	neap_client_close(&slow);
	stop();
	assert_int_equal(forbidden, 0);
	assert_int_equal(left_behind, 1);
	assert_int_equal(failures, 0);
	sem_destroy(&entered);
	sem_destroy(&gate);
}

/* When the host closes all descriptors, the server gives up, says so, and closes only its own. */
static void host_closes_descriptors(void **state)
{
	(void)state;
	struct neap_client client;
	start(BOUND_MS);
	open_client(&client);
	expect_echo(&client, 1);
	int listening = server.listening.fd;
	int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); /* of the same kind */
	assert_int_equal(dup2(other, listening), listening);        /* the number now names another file */
	neap_client_close(&client);                                 /* something happens: the server looks */
	stop();
	assert_int_equal(failures, 1);
	assert_true(fcntl(listening, F_GETFD) >= 0);
	close(listening);
	close(other);
}

static int set_up(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/neap-test-server-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	char path[128];
	snprintf(path, sizeof path, "%s/%d.sock", folder, (int)getpid());
	unlink(path);
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_are_answered),
		cmocka_unit_test(broken_frames_are_refused),
		cmocka_unit_test(stalled_peers_are_dropped),
		cmocka_unit_test(hanging_up_anywhere),
		cmocka_unit_test(many_at_once),
		cmocka_unit_test(waiting_bytes_keep_a_place),
		cmocka_unit_test(host_closes_descriptors),
		cmocka_unit_test(given_up_requests_are_not_executed),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
