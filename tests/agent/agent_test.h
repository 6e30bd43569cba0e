/* The agent in a process with allocators on the simulator. A client in the same process asks it through its own
 * socket: the server runs in another thread, so that it cannot tell this client from one outside. This header is what
 * its tests share.
 */
#ifndef NEAP_TESTS_AGENT_TEST_H
#define NEAP_TESTS_AGENT_TEST_H

#include "neap/neap.h"
#include "proto/client.h"
#include "support/test.h"

#include <stdio.h>

extern char base[64], folder[80]; /* XDG_RUNTIME_DIR, and neap's folder in it */
extern struct neap_driver *driver;
extern struct neap_device *device;

/* Of a group. */
int set_up(void **state);
int tear_down(void **state);

/* RUNTIME/PID and the suffix. */
void path_in(char text[128], const char *suffix);
bool exists(const char *suffix);

/* These fail the test when the call fails. */
void must(enum neap_status status, const struct neap_error *err);
struct neap_alloc *make_alloc(void);
uint64_t take(struct neap_alloc *alloc, size_t bytes);
void attach(void);
void open_client(struct neap_client *client);
void ask(struct neap_client *client, enum neap_request request, uint64_t force, struct neap_fields *ret_reply);
uint64_t number_of(const struct neap_fields *reply, size_t device_index, unsigned field);
bool has_number(const struct neap_fields *reply, size_t device_index, unsigned field, uint64_t *ret_value);

enum neap_status ask_fraction(struct neap_client *client, double fraction, struct neap_fields *ret_reply,
			      struct neap_error *err);

/* The page's figure of reserved bytes; -1: no allocator. */
int64_t page_reserved(void);
/* The newest event of this kind in the process's recording. Returns how many there are. */
size_t recorded(uint16_t kind, struct neap_event *ret_event);

#endif
