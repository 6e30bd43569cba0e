/* agent/settings.c: reads the environment's settings of allocators, and of memory requests between processes. */
#include "agent/agent.h"

#include "base/error.h"
#include "base/units.h"

#include <stdlib.h>
#include <string.h>

static const char *const peers_names[] = {
	[AGENT_PEERS_RUN] = "run", [AGENT_PEERS_USER] = "user", [AGENT_PEERS_OFF] = "off"};

/* Reads NEAP_PEERS; unset means run. False: its value is unknown. */
static bool read_peers(enum agent_peers *ret_peers)
{
	const char *value = getenv("NEAP_PEERS");
	if (!value || !value[0]) {
		*ret_peers = AGENT_PEERS_RUN;
		return true;
	}
	for (size_t i = 0; i < sizeof peers_names / sizeof *peers_names; i++) {
		if (strcmp(value, peers_names[i]) == 0) {
			*ret_peers = (enum agent_peers)i;
			return true;
		}
	}
	return false;
}

enum agent_peers agent_peers_setting(void)
{
	enum agent_peers peers = AGENT_PEERS_RUN;
	read_peers(&peers);
	return peers;
}

void agent_apply_environment(struct neap_alloc *alloc, struct neap_error *ret_note)
{
	const char *value = getenv("NEAP_FRACTION");
	enum agent_peers peers;
	double fraction;
	*ret_note = (struct neap_error){0};
	if (value && value[0] && neap_fraction_parse(value, &fraction, ret_note) != NEAP_OK)
		neap_error_prefix(ret_note, "NEAP_FRACTION is not followed");
	else if (value && value[0] && neap_get_fraction(alloc) >= 1)
		neap_set_fraction(alloc, fraction, NULL); /* cannot fail: nothing is reserved yet */
	if (ret_note->status == NEAP_OK && !read_peers(&peers))
		neap_fail(ret_note, NEAP_EPARSE,
			  "NEAP_PEERS is not followed: expected run, user or off, not \"%.40s\"",
			  getenv("NEAP_PEERS"));
}
