/* Speculative decoding of a context: the options draft, drafter, draft_max and draft_tree. */
#pragma once

#include "api/api.h"
#include "decode/spec/spec.h"

struct api_draft {
    struct model *model;         /* draft model or draft head; NULL: none */
    size_t tapped[MAX_FEATURES]; /* hidden states that a draft head reads */
    struct session *session;     /* the draft model's */
    struct drafter *drafter;
    struct spec_options options;
    struct spec *spec;
};

/* Opens the draft model, if any, and sizes the forward passes of the session that is to be opened for
 * draft tokens. Without a drafter in the options *draft is NULL. */
int api_draft_open(struct api_draft **draft, const struct bmc_options *options,
                   const struct bmc_model *target, struct session_options *s, struct err *err) MUST_USE;

/* Opens the drafter, after the session. */
int api_draft_begin(struct api_draft *draft, const struct bmc_options *options, struct session *target,
                    struct err *err) MUST_USE;

void api_draft_close(struct api_draft *draft); /* NULL is accepted */
