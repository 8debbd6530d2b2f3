/* A rank of a split model that does what rank 0 says. */
#ifndef BMC_FOLLOW_H
#define BMC_FOLLOW_H

#include "decode/session.h"

/* Runs sessions like those of rank 0 until the run ends. The model is split; rank 0 says how large the session is, `options` the
 * rest of it. */
int follow(const struct model *model, const struct session_options *options, struct err *err) MUST_USE;

#endif
