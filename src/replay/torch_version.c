/* replay/torch_version.c: one row for each release that changed something. */
#include "replay/torch_version.h"
#include "base/error.h"
#include "base/units.h"

#include <string.h>

static const struct {
	unsigned since;
	struct neap_torch_rules rules;
} changes[] = {
	{4, {.order = NEAP_TORCH_BY_ADDRESS, .splits_alike = true}},
	{10, {.order = NEAP_TORCH_BY_ADDRESS, .fraction_1_is_none = true}},
	{12, {.order = NEAP_TORCH_BY_BLOCK_AGE, .fraction_1_is_none = true}},
	{13,
	 {.order = NEAP_TORCH_BY_SEGMENT_AGE,
	  .fraction_1_is_none = true,
	  .fraction_rounds = true,
	  .pools_flush = true}},
};

#define CHANGES (sizeof changes / sizeof changes[0])

struct neap_torch_rules neap_torch_rules(unsigned minor, unsigned *ret_from, unsigned *ret_to)
{
	size_t i = CHANGES - 1;
	while (i > 0 && changes[i].since > minor)
		i--;
	*ret_from = changes[i].since;
	*ret_to = i + 1 < CHANGES ? changes[i + 1].since - 1 : NEAP_TORCH_NEWEST;
	return changes[i].rules;
}

const char *neap_torch_order_name(enum neap_torch_order order)
{
	static const char *const names[] = {[NEAP_TORCH_BY_ADDRESS] = "address",
					    [NEAP_TORCH_BY_BLOCK_AGE] = "age of the block",
					    [NEAP_TORCH_BY_SEGMENT_AGE] = "age of the segment"};
	return names[order];
}

enum neap_status neap_torch_version_parse(const char *text, unsigned *ret_minor, struct neap_error *err)
{
	char digits[8];
	uint64_t minor = 0;
	size_t length = strncmp(text, "2.", 2) == 0 ? strcspn(text + 2, ".+ab") : 0;
	if (length > 0 && length < sizeof digits) {
		memcpy(digits, text + 2, length);
		digits[length] = '\0';
	}
	if (!length || length >= sizeof digits || neap_u64_parse(digits, &minor, NULL) != NEAP_OK)
		return neap_fail(err, NEAP_EPARSE, "a release of PyTorch is written as 2.15, not '%.32s'", text);
	if (minor < NEAP_TORCH_OLDEST || minor > NEAP_TORCH_NEWEST)
		return neap_fail(err, NEAP_ENOTSUP, "PyTorch 2.%llu is not modelled: only 2.%u to 2.%u are",
				 (unsigned long long)minor, NEAP_TORCH_OLDEST, NEAP_TORCH_NEWEST);
	*ret_minor = (unsigned)minor;
	return NEAP_OK;
}
