/* Detects source tensors that a conversion would drop: the configuration may not fit the model. */
#pragma once

#include "model/family/family.h"

/* Fails if the source has tensors that are neither in `used` nor known to be no weights of a language model;
 * `note` then says what is left out, if anything. `used` may contain NULL; it is sorted in place. */
int check_unused_tensors(const struct weight_source *source, const struct family *family,
                         const struct config *config, const struct source_tensor **used, size_t n,
                         struct err *note, struct err *err) MUST_USE;
