/* Drafts of constrained requests: draft tokens that the constraint does not allow are left out. */
#ifndef BMC_DRAFT_CONSTRAINT_H
#define BMC_DRAFT_CONSTRAINT_H

#include "decode/spec/drafter.h"

/* Removes the nodes whose tokens are not allowed, and those below them. */
void draft_prune(struct draft *draft);

#endif
