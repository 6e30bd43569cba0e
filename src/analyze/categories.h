/* analyze/categories.h: what memory is for: parameters, gradients, ... each with its evidence. Pure.
 *
 * In this order, the first that answers:
 *
 *   tag        a recording of neap's says it
 *   frames     what the program was doing when it allocated (sites.h), with how long the block lived:
 *                making the model      parameters
 *                optimizer             kept past the step's end: optimizer state; else temporaries
 *                backward              kept past the step's end, or freed by zero_grad or the optimizer: gradients;
 *                                      else temporaries
 *                forward               freed by backward, or alive for long: activations; kept over 2 step ends:
 *                                      unknown; else temporaries
 *                cuBLAS, cuDNN         workspaces
 *   lifetime   where steps are known:
 *                before the first step, kept over 2 step ends      parameters; unknown where steps had ended before
 *                                                                  the first event: optimizer state looks the same
 *                begun in the first step, kept over 2 step ends    optimizer state (gradients that are kept, rather
 *                                                                  than set to none, look the same)
 *                over one step's end, and freed                    gradients (a batch loaded ahead looks the same)
 *                within a step, for long                           activations
 *                within a step, shorter                            temporaries
 *
 * For long: a fortieth of the step's events, and more than 8 of them. (Where frames of frees tell, nine tenths of
 * what backward freed lived longer than that, and nine tenths of what forward itself freed did not.)
 *
 * What none of them tells is unknown.
 */
#ifndef NEAP_ANALYZE_CATEGORIES_H
#define NEAP_ANALYZE_CATEGORIES_H

#include "analyze/lives.h"
#include "analyze/sites.h"
#include "analyze/steps.h"

enum neap_category {
	NEAP_CATEGORY_PARAMETERS,
	NEAP_CATEGORY_GRADIENTS,
	NEAP_CATEGORY_OPTIMIZER,
	NEAP_CATEGORY_ACTIVATIONS,
	NEAP_CATEGORY_TEMPORARIES,
	NEAP_CATEGORY_WORKSPACES,
	NEAP_CATEGORY_INPUTS, /* batches; by tag only */
	NEAP_CATEGORY_UNKNOWN,
	NEAP_CATEGORIES
};

enum neap_category_how { NEAP_HOW_TAG, NEAP_HOW_FRAMES, NEAP_HOW_LIFETIME, NEAP_HOW_NOTHING, NEAP_HOWS };

struct neap_categories {
	uint64_t bytes[NEAP_CATEGORIES][NEAP_HOWS]; /* requested */
	uint64_t blocks[NEAP_CATEGORIES][NEAP_HOWS];
};

enum neap_category neap_category_of(const struct neap_sites *sites, const struct neap_steps *steps, uint64_t events,
				    const struct neap_life *life, enum neap_category_how *ret_how);

/* Just after `event`; `events`: how many the device has. */
void neap_categories_at(const struct neap_lives *lives, const struct neap_sites *sites,
			const struct neap_steps *steps, uint64_t events, uint64_t event,
			struct neap_categories *ret_categories);

/* "parameters", "optimizer state"; "frames". Static. */
const char *neap_category_name(enum neap_category category);
const char *neap_category_how_name(enum neap_category_how how);

#endif
