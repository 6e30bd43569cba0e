/* replay/replay_guess.c: guesses facts that a recording lacks. A wrong guess makes the replay differ from the
 * recording.
 *
 *   the release of PyTorch that made it, if its keys fit several
 *   the sizes of blocks at its start; the private pools that do not split blocks
 *
 * (torch_age.c learns within a replay how old the first segments are.)
 */
#include "replay/replay_internal.h"

#define CORRECTIONS 32

static uint64_t difference_of(const struct replay *replay) { return replay->result.match.first_difference; }

/* Replays as one release up to the first difference. Improves the guesses and replays again, as long as that moves
 * the difference. */
static enum neap_status replay_as(const struct neap_trace *trace, const struct neap_replay_options *options,
				  unsigned torch, struct replay **ret_replay, struct neap_error *err)
{
	struct replay_guesses guesses = {.torch = torch};
	struct replay *kept = NULL, *better = NULL;
	enum neap_status status = replay_open(trace, options, &guesses, &kept, err);
	for (int i = 0; !status && replay_correct_guess(kept, &guesses) && i < CORRECTIONS; i++) {
		status = replay_open(trace, options, &guesses, &better, err);
		if (status)
			break;
		if (difference_of(better) <= difference_of(kept)) {
			replay_close(better);
			break;
		}
		replay_close(kept);
		kept = better;
	}
	neap_map_fini(&guesses.extra);
	neap_map_fini(&guesses.whole);
	if (status)
		replay_close(kept);
	else
		*ret_replay = kept;
	return status;
}

/* Replays as every release that may have made the trace, newest first, until one fits. Each stops at its first
 * difference. Only the one that comes furthest is kept. */
static enum neap_status replay_as_any(const struct neap_trace *trace, const struct neap_replay_options *options,
				      unsigned from, unsigned to, struct replay **ret_replay, struct neap_error *err)
{
	struct replay *best = NULL, *replay = NULL;
	bool several = false;
	unsigned first, last;
	for (unsigned torch = to; torch >= from; torch = first - 1) {
		neap_torch_rules(torch, &first, &last);
		enum neap_status status = replay_as(trace, options, torch, &replay, err);
		if (status) {
			replay_close(best);
			return status;
		}
		replay->result.version.from = first > from ? first : from;
		replay->result.version.to = torch;
		several = several || first > from;
		bool wins = !best || difference_of(replay) > difference_of(best);
		replay_close(wins ? best : replay);
		best = wins ? replay : best;
		if (!best->same || difference_of(best) == UINT64_MAX)
			break;
	}
	best->result.version.why = several ? NEAP_REPLAY_VERSION_CHOICES : NEAP_REPLAY_VERSION_KEYS;
	if (several && !best->same)
		best->result.version.why = NEAP_REPLAY_VERSION_NEWEST;
	*ret_replay = best;
	return NEAP_OK;
}

/* Replays up to the first difference, as the release that the options name, or as the one that fits best. */
static enum neap_status replay_as_wanted(const struct neap_trace *trace, const struct neap_replay_options *options,
					 struct replay **ret_replay, struct neap_error *err)
{
	unsigned from = trace->torch_from ? trace->torch_from : NEAP_TORCH_OLDEST;
	unsigned to = trace->torch_to ? trace->torch_to : NEAP_TORCH_NEWEST;
	unsigned torch = options->torch;
	if (!torch && options->policy != NEAP_REPLAY_NEAP && trace->torch)
		return replay_as_any(trace, options, from, to, ret_replay, err);
	enum neap_status status = replay_as(trace, options, torch ? torch : NEAP_TORCH_NEWEST, ret_replay, err);
	if (!status && torch) {
		struct neap_replay_version *version = &(*ret_replay)->result.version;
		version->from = version->to = torch;
		version->why = NEAP_REPLAY_VERSION_ASKED;
	}
	return status;
}

enum neap_status neap_replay(const struct neap_trace *trace, const struct neap_replay_options *options,
			     struct neap_replay_result *ret_result, struct neap_error *err)
{
	struct replay *replay = NULL;
	enum neap_status status = replay_as_wanted(trace, options, &replay, err);
	if (!status)
		status = replay_finish(replay, err);
	if (!status)
		*ret_result = replay->result;
	replay_close(replay);
	return status;
}
