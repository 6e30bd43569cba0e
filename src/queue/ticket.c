/* queue/ticket.c: see ticket.h. */
#include "queue/ticket.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HEAD "neap ticket 1"

uint64_t neap_ticket_pause_ns(uint32_t tries)
{
	uint64_t pause_ns = NEAP_NS_PER_S;
	for (uint32_t i = 1; i < tries && i < NEAP_QUEUE_TRIES; i++)
		pause_ns *= 10;
	return pause_ns;
}

/* --- writing --- */

static void add(char *bytes, size_t *length, const char *key, const char *value)
{
	bool full = *length >= NEAP_TICKET_BYTES;
	*length += (size_t)snprintf(full ? NULL : bytes + *length, full ? 0 : NEAP_TICKET_BYTES + 1 - *length,
				    "%s %s\n", key, value);
}

static void add_number(char *bytes, size_t *length, const char *key, uint64_t value)
{
	char text[24];
	snprintf(text, sizeof text, "%" PRIu64, value);
	add(bytes, length, key, text);
}

enum neap_status neap_ticket_write(const struct neap_ticket *ticket, char ret_bytes[NEAP_TICKET_BYTES],
				   struct neap_error *err)
{
	char bytes[NEAP_TICKET_BYTES + 1] = HEAD "\n";
	size_t length = strlen(bytes);
	add_number(bytes, &length, "order", ticket->order);
	add_number(bytes, &length, "pid", (uint64_t)ticket->pid);
	add_number(bytes, &length, "start", ticket->start_ticks);
	add_number(bytes, &length, "holds", ticket->holds);
	add_number(bytes, &length, "paused", ticket->paused);
	add_number(bytes, &length, "added", ticket->added);
	add_number(bytes, &length, "dropped", ticket->dropped);
	add_number(bytes, &length, "lost", ticket->lost);
	add_number(bytes, &length, "tries", ticket->tries);
	if (ticket->needs.kind == NEAP_NEEDS_BYTES)
		add_number(bytes, &length, "needs", ticket->needs.bytes);
	else
		add(bytes, &length, "needs", "device");
	add_number(bytes, &length, "gpus", ticket->gpus);
	add_number(bytes, &length, "since", ticket->since_wall_ns);
	for (size_t i = 0; i < ticket->device_count; i++)
		add(bytes, &length, "device", ticket->devices[i]);
	add(bytes, &length, "run", ticket->run_id);
	add(bytes, &length, "folder", ticket->folder);
	add(bytes, &length, "command", NEAP_PRINTABLE(ticket->command));
	add(bytes, &length, "end", "");
	if (length > NEAP_TICKET_BYTES || strpbrk(ticket->folder, "\n"))
		return neap_fail(err, NEAP_EINVAL, "the run's folder does not fit into a ticket: %.100s",
				 ticket->folder);
	memset(bytes + length, '\n', NEAP_TICKET_BYTES - length);
	memcpy(ret_bytes, bytes, NEAP_TICKET_BYTES);
	return NEAP_OK;
}

/* --- reading --- */

static bool read_flag(const char *value, bool *ret_flag)
{
	*ret_flag = !strcmp(value, "1");
	return *ret_flag || !strcmp(value, "0");
}

static bool read_number(const char *value, uint64_t most, uint64_t *ret_number)
{
	return !neap_u64_parse(value, ret_number, NULL) && *ret_number <= most;
}

static bool read_text(const char *value, char *ret_text, size_t capacity)
{
	return (size_t)snprintf(ret_text, capacity, "%s", value) < capacity;
}

static bool read_needs(const char *value, struct neap_needs *needs)
{
	needs->kind = strcmp(value, "device") ? NEAP_NEEDS_BYTES : NEAP_NEEDS_DEVICE;
	return needs->kind == NEAP_NEEDS_DEVICE || (read_number(value, UINT64_MAX, &needs->bytes) && needs->bytes);
}

static bool read_device(const char *value, struct neap_ticket *ticket)
{
	return ticket->device_count < NEAP_GPUS && *value &&
	       read_text(value, ticket->devices[ticket->device_count++], sizeof *ticket->devices);
}

static bool read_line(const char *key, const char *value, struct neap_ticket *ticket)
{
	uint64_t number = 0;
	if (!strcmp(key, "order"))
		return read_number(value, UINT64_MAX, &ticket->order);
	if (!strcmp(key, "pid")) {
		bool fine = read_number(value, INT32_MAX, &number);
		ticket->pid = (pid_t)number;
		return fine;
	}
	if (!strcmp(key, "start"))
		return read_number(value, UINT64_MAX, &ticket->start_ticks);
	if (!strcmp(key, "holds"))
		return read_flag(value, &ticket->holds);
	if (!strcmp(key, "paused"))
		return read_flag(value, &ticket->paused);
	if (!strcmp(key, "added"))
		return read_flag(value, &ticket->added);
	if (!strcmp(key, "dropped"))
		return read_flag(value, &ticket->dropped);
	if (!strcmp(key, "lost") || !strcmp(key, "tries") || !strcmp(key, "gpus")) {
		bool fine = read_number(value, UINT32_MAX, &number);
		*(*key == 'l' ? &ticket->lost : *key == 't' ? &ticket->tries : &ticket->gpus) = (uint32_t)number;
		return fine;
	}
	if (!strcmp(key, "needs"))
		return read_needs(value, &ticket->needs);
	if (!strcmp(key, "since"))
		return read_number(value, UINT64_MAX, &ticket->since_wall_ns);
	if (!strcmp(key, "device"))
		return read_device(value, ticket);
	if (!strcmp(key, "run"))
		return read_text(value, ticket->run_id, sizeof ticket->run_id);
	if (!strcmp(key, "folder"))
		return read_text(value, ticket->folder, sizeof ticket->folder);
	return strcmp(key, "command") != 0 || read_text(value, ticket->command, sizeof ticket->command);
}

enum neap_status neap_ticket_read(const char bytes[NEAP_TICKET_BYTES], struct neap_ticket *ret_ticket,
				  struct neap_error *err)
{
	struct neap_ticket ticket = {0};
	char text[NEAP_TICKET_BYTES + 1], *at = text;
	bool ended = false;
	memcpy(text, bytes, NEAP_TICKET_BYTES);
	text[NEAP_TICKET_BYTES] = '\0';
	for (uint32_t number = 1; *at && !ended; number++) {
		char *end = strchr(at, '\n'), *space = strchr(at, ' ');
		if (!end)
			return neap_fail_at(err, number, 1, "a ticket's line does not end");
		*end = '\0';
		ended = !strncmp(at, "end ", 4);
		bool fine = number == 1 ? !strcmp(at, HEAD) : ended || (space && space < end);
		if (fine && number > 1 && !ended) {
			*space = '\0';
			fine = read_line(at, space + 1, &ticket);
		}
		if (!fine)
			return neap_fail_at(err, number, 1, "this is no line of a ticket");
		at = end + 1;
	}
	if (!ended || !ticket.gpus || ticket.gpus > ticket.device_count ||
	    (ticket.holds && ticket.gpus != ticket.device_count) || ticket.needs.kind == NEAP_NEEDS_NONE)
		return neap_fail(err, NEAP_EPARSE, "the ticket is not whole");
	*ret_ticket = ticket;
	return NEAP_OK;
}
