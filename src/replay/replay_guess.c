/* replay/replay_guess.c: guesses facts that a recording lacks. A wrong guess makes the replay differ from the
 * recording.
 *
 *   which release of PyTorch made it, where its keys fit several
 *   sizes of blocks at its start; which private pools do not split blocks
 *
 * (torch_age.c learns within a replay how old the first segments are.)
 */
#include "replay/replay_internal.h"

#define CORRECTIONS 32

/* Replays as one release, and again with better guesses after a first difference. */
static enum neap_status replay_as(const struct neap_trace *trace, const struct neap_replay_options *options,
				  unsigned torch, struct neap_replay_result *ret_result, struct neap_error *err)
{
	struct replay_guesses guesses = {.torch = torch};
	struct neap_replay_result result, better;
	bool again = false;
	enum neap_status status = replay_once(trace, options, &guesses, &result, &again, err);
	for (int i = 0; !status && again && i < CORRECTIONS; i++) {
		status = replay_once(trace, options, &guesses, &better, &again, err);
		if (!status && better.match.first_difference <= result.match.first_difference)
			break;
		if (!status)
			result = better;
	}
	neap_map_fini(&guesses.extra);
	neap_map_fini(&guesses.whole);
	if (!status)
		*ret_result = result;
	return status;
}

/* Replays as every release that may have made the trace, newest first, until one fits. */
static enum neap_status replay_as_any(const struct neap_trace *trace, const struct neap_replay_options *options,
				      unsigned from, unsigned to, struct neap_replay_result *ret_result,
				      struct neap_error *err)
{
	struct neap_replay_result best = {0}, result;
	bool several = false;
	unsigned first, last;
	for (unsigned torch = to; torch >= from; torch = first - 1) {
		neap_torch_rules(torch, &first, &last);
		enum neap_status status = replay_as(trace, options, torch, &result, err);
		if (status)
			return status;
		result.version.from = first > from ? first : from;
		result.version.to = torch;
		if (torch == to || result.match.first_difference > best.match.first_difference)
			best = result;
		several = several || first > from;
		if (!best.match.compared || best.match.first_difference == UINT64_MAX)
			break;
	}
	best.version.why = several ? NEAP_REPLAY_VERSION_CHOICES : NEAP_REPLAY_VERSION_KEYS;
	if (several && !best.match.compared)
		best.version.why = NEAP_REPLAY_VERSION_NEWEST;
	*ret_result = best;
	return NEAP_OK;
}

enum neap_status neap_replay(const struct neap_trace *trace, const struct neap_replay_options *options,
			     struct neap_replay_result *ret_result, struct neap_error *err)
{
	unsigned from = trace->torch_from ? trace->torch_from : NEAP_TORCH_OLDEST;
	unsigned to = trace->torch_to ? trace->torch_to : NEAP_TORCH_NEWEST;
	if (options->torch || options->policy == NEAP_REPLAY_NEAP || !trace->torch) {
		enum neap_status status = replay_as(
			trace, options, options->torch ? options->torch : NEAP_TORCH_NEWEST, ret_result, err);
		if (!status && options->torch) {
			ret_result->version.from = ret_result->version.to = options->torch;
			ret_result->version.why = NEAP_REPLAY_VERSION_ASKED;
		}
		return status;
	}
	return replay_as_any(trace, options, from, to, ret_result, err);
}
