/* alloc/plan/track.c: follows a program through a sequence of requests that it repeats. See plan.h. */
#include "alloc/plan/plan.h"

#include <stdlib.h>

#define TRIED_MOST 256 /* how many places with runs of one hash it tries; a loop with more rounds has more */

/* Indexes every run of the sequence by its hash, with the place that follows it. */
static void index_runs(struct neap_track *track)
{
	struct neap_run run = {0};
	uint32_t count = track->count;
	for (uint32_t i = count - NEAP_RUN; track->cyclic && i < count; i++)
		neap_run_add(&run, track->tokens[i]);
	for (uint32_t place = 0; place < count; place++) {
		if (neap_run_full(&run)) {
			uint32_t *head = &track->heads[run.hash >> track->shift];
			track->chain[place] = *head;
			*head = place + 1;
		}
		neap_run_add(&run, track->tokens[place]);
	}
}

bool neap_track_init(struct neap_track *track, uint64_t *tokens, uint32_t count, bool cyclic)
{
	*track = (struct neap_track){.tokens = tokens, .count = count, .cyclic = cyclic, .shift = 63};
	while (track->shift > 32 && (UINT64_MAX >> track->shift) < count)
		track->shift--;
	track->heads = calloc((size_t)1 << (64 - track->shift), sizeof *track->heads);
	track->chain = calloc(count, sizeof *track->chain);
	if (!track->heads || !track->chain) {
		neap_track_fini(track);
		return false;
	}
	if (count >= NEAP_RUN)
		index_runs(track);
	return true;
}

void neap_track_fini(struct neap_track *track)
{
	free(track->tokens);
	free(track->heads);
	free(track->chain);
	*track = (struct neap_track){0};
}

/* Whether the tokens before `place` equal the program's last run. */
static bool follows_run(const struct neap_track *track, uint32_t place)
{
	for (uint32_t back = 1; back <= NEAP_RUN; back++) {
		uint32_t at = place >= back ? place - back : place + track->count - back;
		if (track->tokens[at] != track->run.last[(track->run.count - back) % NEAP_RUN])
			return false;
	}
	return true;
}

/* Finds the place after the program's last run. A loop has many such places. It chooses the one nearest to where the
 * program would be if each surprise had replaced one expected request. Chains lead from the end of the sequence to
 * its beginning. */
static void find_way(struct neap_track *track)
{
	uint64_t expected = track->next + track->run.count, nearest = UINT64_MAX;
	uint32_t link = track->heads[track->run.hash >> track->shift], found = 0;
	for (int tried = 0; link && tried < TRIED_MOST; link = track->chain[link - 1], tried++) {
		uint32_t place = link - 1;
		uint64_t distance = place > expected ? place - expected : expected - place;
		if (distance < nearest && follows_run(track, place)) {
			nearest = distance;
			found = place;
		}
	}
	if (nearest != UINT64_MAX)
		neap_track_set(track, found);
}

bool neap_track_follow(struct neap_track *track, uint64_t token, uint32_t *ret_place)
{
	if (!track->lost && track->next < track->count && track->tokens[track->next] == token) {
		*ret_place = track->next++;
		if (track->cyclic && track->next == track->count)
			track->next = 0;
		return true;
	}
	if (!track->lost)
		track->run = (struct neap_run){0};
	track->lost = true;
	neap_run_add(&track->run, token);
	if (neap_run_full(&track->run) && track->count >= NEAP_RUN)
		find_way(track);
	return false;
}

void neap_track_set(struct neap_track *track, uint32_t next)
{
	track->next = next;
	track->lost = false;
}
