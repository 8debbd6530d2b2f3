/* Layers with experts beside their MLP. */
#ifndef BMC_FORWARD_BESIDE_H
#define BMC_FORWARD_BESIDE_H

#include "model/forward.h"

/* branch = norm(branch) + norm(experts(norm(x))), where `branch` is the MLP's output and each norm has gains of
 * its own. Does nothing for layers without. */
int forward_beside(struct forward *f, struct row_range rows, size_t layer, struct err *err) MUST_USE;

#endif
