/* Our declarations of NCCL against nccl.h. Building this program proves that the prototypes agree; running it
 * compares values, sizes and offsets. */
#include "sim/libraries/nccl/api.h"

#include "nccl_facts.h"

#include <stdio.h>
#include <string.h>

const struct nccl_fact nccl_facts_ours[] = {NCCL_FACTS};

int main(void)
{
	int wrong = nccl_fact_count != sizeof nccl_facts_ours / sizeof nccl_facts_ours[0];

	for (size_t i = 0; i < nccl_fact_count; i++) {
		if (strcmp(nccl_facts_ours[i].what, nccl_facts_theirs[i].what) == 0 &&
		    nccl_facts_ours[i].value == nccl_facts_theirs[i].value)
			continue;
		fprintf(stderr, "%s: %lld here, %lld in nccl.h\n", nccl_facts_ours[i].what, nccl_facts_ours[i].value,
			nccl_facts_theirs[i].value);
		wrong = 1;
	}
	return wrong;
}
