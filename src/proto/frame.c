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

/* Waits for `events`, or until the peer closes, which the next call reports. */
static enum neap_status wait_for(int fd, short events, const struct neap_deadline *deadline, struct neap_error *err)
{
	while (!neap_deadline_over(deadline)) {
		struct pollfd one = {.fd = fd, .events = events};
		int count = poll(&one, 1, neap_deadline_poll_ms(deadline));
		if (count > 0)
			return NEAP_OK;
		if (count < 0 && errno != EINTR)
			return neap_fail_errno(err, errno, "waiting for the peer");
	}
	return neap_fail(err, NEAP_ETIMEDOUT, "the peer did not %s in time",
			 events == POLLIN ? "answer" : "take what was sent");
}

static enum neap_status send_all(int fd, const void *bytes, size_t length, const struct neap_deadline *deadline,
				 struct neap_error *err)
{
	const unsigned char *next = bytes;
	while (length > 0) {
		ssize_t sent = send(fd, next, length, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent >= 0) {
			next += sent;
			length -= (size_t)sent;
		} else if (errno == EAGAIN) {
			enum neap_status status = wait_for(fd, POLLOUT, deadline, err);
			if (status)
				return status;
		} else if (errno != EINTR) {
			return neap_fail_errno(err, errno, "sending to the peer");
		}
	}
	return NEAP_OK;
}

static enum neap_status receive_all(int fd, void *ret_bytes, size_t length, const struct neap_deadline *deadline,
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
			enum neap_status status = wait_for(fd, POLLIN, deadline, err);
			if (status)
				return status;
		} else if (errno != EINTR) {
			return neap_fail_errno(err, errno, "receiving from the peer");
		}
	}
	return NEAP_OK;
}

enum neap_status neap_frame_send(int fd, const struct neap_frame *frame, const void *payload,
				 const struct neap_deadline *deadline, struct neap_error *err)
{
	unsigned char header[NEAP_FRAME_HEADER_BYTES];
	neap_frame_encode(frame, header);
	enum neap_status status = send_all(fd, header, sizeof header, deadline, err);
	return status == NEAP_OK ? send_all(fd, payload, frame->length, deadline, err) : status;
}

enum neap_status neap_frame_receive(int fd, struct neap_frame *ret_frame, struct neap_buffer *payload,
				    const struct neap_deadline *deadline, struct neap_error *err)
{
	unsigned char header[NEAP_FRAME_HEADER_BYTES];
	struct neap_frame frame = {0};
	enum neap_status status = receive_all(fd, header, sizeof header, deadline, err);
	if (!status)
		status = neap_frame_decode(header, &frame, err);
	if (status)
		return status;
	neap_buffer_clear(payload);
	unsigned char piece[4096];
	for (size_t left = frame.length; left > 0 && !status;) {
		size_t bytes = left < sizeof piece ? left : sizeof piece;
		status = receive_all(fd, piece, bytes, deadline, err);
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
