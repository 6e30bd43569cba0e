/* proto/frame.h: one message on a socket, as a header and a payload. Everything that arrives is hostile.
 *
 *   0   4  magic "NEAP"
 *   4   2  version            all numbers little-endian
 *   6   2  command            enum neap_request (proto/commands.h); a reply repeats its request's
 *   8   4  request            chosen by the client, repeated by the reply
 *   12  4  status             0 in a request; enum neap_status in a reply
 *   16  4  length             of the payload, at most NEAP_FRAME_PAYLOAD_MAX
 *   20  .. payload            fields, see proto/fields.h
 *
 * The first twelve bytes keep this layout in every version, so that a peer of another version can be answered. A
 * header that is wrong is answered with an error and the connection is closed: the bytes after it cannot be trusted.
 *
 * Deadlines are absolute, in nanoseconds of CLOCK_MONOTONIC. Any thread; one thread per socket at a time.
 */
#ifndef NEAP_PROTO_FRAME_H
#define NEAP_PROTO_FRAME_H

#include "base/buffer.h"
#include "base/clock.h"

#define NEAP_FRAME_MAGIC        "NEAP"
#define NEAP_FRAME_VERSION      1u
#define NEAP_FRAME_HEADER_BYTES 20u
#define NEAP_FRAME_PAYLOAD_MAX  (1u << 20)

struct neap_frame {
	uint16_t version;
	uint16_t command;
	uint32_t request;
	uint32_t status;
	uint32_t length;
};

void neap_frame_encode(const struct neap_frame *frame, unsigned char ret_header[NEAP_FRAME_HEADER_BYTES]);

/* Errors: NEAP_EPROTO for the magic, the version or the length; if only the magic is right, *ret_frame is filled all
 * the same, for the answer. */
enum neap_status neap_frame_decode(const unsigned char header[NEAP_FRAME_HEADER_BYTES], struct neap_frame *ret_frame,
				   struct neap_error *err);

/* Sends or receives one whole frame on a stream socket, blocking or not, until the deadline. `payload` is replaced.
 * Errors: NEAP_ETIMEDOUT, NEAP_EPROTO, NEAP_EIO (also when the peer closed), NEAP_ENOMEM. Never raises SIGPIPE. */
enum neap_status neap_frame_send(int fd, const struct neap_frame *frame, const void *payload,
				 const struct neap_deadline *deadline, struct neap_error *err);
enum neap_status neap_frame_receive(int fd, struct neap_frame *ret_frame, struct neap_buffer *payload,
				    const struct neap_deadline *deadline, struct neap_error *err);

#endif
