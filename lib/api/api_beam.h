/* Beam search in bmc_generate(). */
#ifndef BMC_API_BEAM_H
#define BMC_API_BEAM_H

#include "api/api.h"
#include "decode/gen_types.h"

/* Checks the options of beam search, and sets the default of `sequences` for it. */
int api_beam_check(struct bmc_options *options, struct err *err) MUST_USE;

/* Opens beam search, after the session; without the option `beams` context->beam stays NULL. */
int api_beam_open(struct bmc_context *context, const struct bmc_options *options,
                  struct err *err) MUST_USE;

/* Empties all sequences of a context with beam search. */
void api_beam_clear(struct bmc_context *context);

/* Copies the i-th beam of a result. */
int api_beam_copy(struct bmc_result *to, const struct model *model, const struct gen_result *from,
                  size_t i, struct err *err) MUST_USE;

#endif
