/* Draft heads (config_is_draft_head()) and their target models. */
#pragma once

#include "model/model.h"

/* Opens a draft model or draft head: a file, which messages call `name`, or, if `path` is "self", the draft head in the
 * target's own file. */
int draft_open(struct model **draft, const char *path, const char *name, const struct model *target,
               struct err *err) MUST_USE;

/* Checks that a draft head fits a target, and gives the head the target's embedding and LM head where
 * it has none: they are not copied, so the target must outlive it. Sets layer[0 .. features) to the
 * target's hidden states that the head reads, as in struct hidden_tap. */
int draft_head_attach(struct model *head, const struct model *target, size_t layer[MAX_FEATURES],
                      struct err *err) MUST_USE;
