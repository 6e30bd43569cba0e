/* analyze/categories.h: the purpose of memory: parameters, gradients, ... each with its evidence. Pure.
 *
 * The first of these rules that answers decides:
 *
 *   tag        the tag, in a recording of neap
 *   frames     what the program was doing when it allocated (sites.h), and how long the block lived:
 *                making the model      parameters
 *                optimizer             kept past the step's end: optimizer state; else temporaries
 *                backward              kept past the step's end, or freed by zero_grad or the optimizer: gradients;
 *                                      else temporaries
 *                forward               kept over 2 step ends: kept over steps; freed by backward, or alive for long:
 *                                      activations; else temporaries
 *                a line that keeps     kept over 2 step ends: kept over steps; likewise what is not freed, if the
 *                                      line kept all that it made in steps that ended. Such a line of Python is
 *                                      none of the above, and made a block after the first step that was kept over
 *                                      2 step ends: either of a size that no block of the model has, or one in each
 *                                      of 3 steps: a leak, a history
 *                cuBLAS, cuDNN         workspaces
 *   lifetime   where steps are known:
 *                before the first step, kept over 2 step ends      parameters, if a gradient or optimizer state has
 *                                                                  this size: data that is loaded once has neither.
 *                                                                  Unknown where steps had ended before the first
 *                                                                  event: optimizer state looks the same
 *                begun in the first step, kept over 2 step ends    optimizer state, if a parameter has this size
 *                                                                  (gradients that are kept, rather than set to none,
 *                                                                  look the same)
 *                over one step's end, and freed                    gradients, if a block kept from before has this
 *                                                                  size, and if no line of Python asked for it:
 *                                                                  autograd's threads have none. A batch that is
 *                                                                  loaded by the program's own line is unknown
 *                within a step, for long                           activations
 *                within a step, shorter                            temporaries
 *
 * "For long" means at least a fortieth of the step's events, and more than 8 events. (In traces with stacks of frees,
 * nine tenths of the blocks that backward freed lived longer, and nine tenths of those that forward freed did not.)
 *
 * If no rule answers, the category is unknown.
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
	NEAP_CATEGORY_KEPT,   /* kept over steps, and not parameters, gradients or optimizer state */
	NEAP_CATEGORY_UNKNOWN,
	NEAP_CATEGORIES
};

enum neap_category_how { NEAP_HOW_TAG, NEAP_HOW_FRAMES, NEAP_HOW_LIFETIME, NEAP_HOW_NOTHING, NEAP_HOWS };

struct neap_categories {
	uint64_t bytes[NEAP_CATEGORIES][NEAP_HOWS]; /* requested */
	uint64_t blocks[NEAP_CATEGORIES][NEAP_HOWS];
};

/* Sets `paired` in each life, for the rules of lifetimes: whether another block has a matching size. Also finds the
 * lines that keep the blocks that they make, and, if no mark shows it, where the first step begins: at the first
 * forward. Call it once, before the other functions. Errors: NEAP_ENOMEM. */
enum neap_status neap_categories_pair(struct neap_lives *lives, struct neap_sites *sites, struct neap_steps *steps,
				      uint64_t events, struct neap_error *err);

enum neap_category neap_category_of(const struct neap_sites *sites, const struct neap_steps *steps, uint64_t events,
				    const struct neap_life *life, enum neap_category_how *ret_how);

/* Adds up the categories of the memory that is live just after `event`. `events`: how many events the device has. */
void neap_categories_at(const struct neap_lives *lives, const struct neap_sites *sites,
			const struct neap_steps *steps, uint64_t events, uint64_t event,
			struct neap_categories *ret_categories);

/* "parameters", "optimizer state"; "frames". Static. */
const char *neap_category_name(enum neap_category category);
const char *neap_category_how_name(enum neap_category_how how);

#endif
