/* proto/frame.c: headers to bytes and back; whole frames in spite of partial reads and writes and of slow peers. */
#include "proto/frame.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

static void put16(unsigned char *to, uint16_t value)
{
	to[0] = (unsigned char)value;
	to[1] = (unsigned char)(value >> 8);
}

static void put32(unsigned char *to, uint32_t value)
{
	put16(to, (uint16_t)value);
	put16(to + 2, (uint16_t)(value >> 16));
}

static uint16_t get16(const unsigned char *from) { return (uint16_t)(from[0] | (unsigned)from[1] << 8); }

static uint32_t get32(const unsigned char *from) { return get16(from) | (uint32_t)get16(from + 2) << 16; }

void neap_frame_encode(const struct neap_frame *frame, unsigned char ret_header[NEAP_FRAME_HEADER_BYTES])
{
	memcpy(ret_header, NEAP_FRAME_MAGIC, 4);
	put16(ret_header + 4, frame->version);
	put16(ret_header + 6, frame->command);
	put32(ret_header + 8, frame->request);
	put32(ret_header + 12, frame->status);
	put32(ret_header + 16, frame->length);
}

enum neap_status neap_frame_decode(const unsigned char header[NEAP_FRAME_HEADER_BYTES], struct neap_frame *ret_frame,
				   struct neap_error *err)
{
	if (memcmp(header, NEAP_FRAME_MAGIC, 4) != 0)
		return neap_fail(err, NEAP_EPROTO, "the peer does not speak neap's protocol (no frame begins here)");
	*ret_frame = (struct neap_frame){.version = get16(header + 4),
					 .command = get16(header + 6),
					 .request = get32(header + 8),
					 .status = get32(header + 12),
					 .length = get32(header + 16)};
	if (ret_frame->version != NEAP_FRAME_VERSION)
		return neap_fail(err, NEAP_EPROTO, "the peer speaks version %u of the protocol, this neap version %u",
				 ret_frame->version, NEAP_FRAME_VERSION);
	if (ret_frame->length > NEAP_FRAME_PAYLOAD_MAX)
		return neap_fail(err, NEAP_EPROTO, "a frame of %u bytes is longer than the limit of %u",
				 ret_frame->length, NEAP_FRAME_PAYLOAD_MAX);
	return NEAP_OK;
}

/* Waits for `events`, or for the peer's end, which the next call then meets. */
static enum neap_status wait_for(int fd, short events, uint64_t deadline_ns, struct neap_error *err)
{
	for (;;) {
		uint64_t now = neap_clock_now(neap_clock_system());
		if (now >= deadline_ns)
			return neap_fail(err, NEAP_ETIMEDOUT, "the peer did not %s in time",
					 events == POLLIN ? "answer" : "take what was sent");
		uint64_t left_ms = (deadline_ns - now) / NEAP_NS_PER_MS + 1;
		struct pollfd one = {.fd = fd, .events = events};
		int count = poll(&one, 1, left_ms > 60000 ? 60000 : (int)left_ms);
		if (count > 0)
			return NEAP_OK;
		if (count < 0 && errno != EINTR)
			return neap_fail_errno(err, errno, "waiting for the peer");
	}
}

static enum neap_status send_all(int fd, const void *bytes, size_t length, uint64_t deadline_ns,
				 struct neap_error *err)
{
	const unsigned char *next = bytes;
	while (length > 0) {
		ssize_t sent = send(fd, next, length, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent >= 0) {
			next += sent;
			length -= (size_t)sent;
		} else if (errno == EAGAIN) {
			enum neap_status status = wait_for(fd, POLLOUT, deadline_ns, err);
			if (status)
				return status;
		} else if (errno != EINTR) {
			return neap_fail_errno(err, errno, "sending to the peer");
		}
	}
	return NEAP_OK;
}

static enum neap_status receive_all(int fd, void *ret_bytes, size_t length, uint64_t deadline_ns,
				    struct neap_error *err)
{
	unsigned char *next = ret_bytes;
	while (length > 0) {
		ssize_t got = recv(fd, next, length, MSG_DONTWAIT);
		if (got > 0) {
			next += got;
			length -= (size_t)got;
		} else if (got == 0) {
			return neap_fail(err, NEAP_EIO, "the peer closed the connection");
		} else if (errno == EAGAIN) {
			enum neap_status status = wait_for(fd, POLLIN, deadline_ns, err);
			if (status)
				return status;
		} else if (errno != EINTR) {
			return neap_fail_errno(err, errno, "receiving from the peer");
		}
	}
	return NEAP_OK;
}

enum neap_status neap_frame_send(int fd, const struct neap_frame *frame, const void *payload, uint64_t deadline_ns,
				 struct neap_error *err)
{
	unsigned char header[NEAP_FRAME_HEADER_BYTES];
	neap_frame_encode(frame, header);
	enum neap_status status = send_all(fd, header, sizeof header, deadline_ns, err);
	return status == NEAP_OK ? send_all(fd, payload, frame->length, deadline_ns, err) : status;
}

enum neap_status neap_frame_receive(int fd, struct neap_frame *ret_frame, struct neap_buffer *payload,
				    uint64_t deadline_ns, struct neap_error *err)
{
	unsigned char header[NEAP_FRAME_HEADER_BYTES];
	struct neap_frame frame = {0};
	enum neap_status status = receive_all(fd, header, sizeof header, deadline_ns, err);
	if (!status)
		status = neap_frame_decode(header, &frame, err);
	if (status)
		return status;
	neap_buffer_clear(payload);
	unsigned char piece[4096];
	for (size_t left = frame.length; left > 0 && !status;) {
		size_t bytes = left < sizeof piece ? left : sizeof piece;
		status = receive_all(fd, piece, bytes, deadline_ns, err);
		if (!status)
			neap_buffer_append(payload, piece, bytes);
		left -= bytes;
	}
	if (!status)
		status = neap_buffer_status(payload, err);
	if (!status)
		*ret_frame = frame;
	return status;
}
