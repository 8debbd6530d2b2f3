/* Beam search in bmc_generate(). */
#ifndef BMC_API_BEAM_H
#define BMC_API_BEAM_H

#include "api/api.h"
#include "decode/gen_types.h"

/* Reads and checks the options of beam search, and sets the default of `sequences` for it. Without the option
 * `beams` the width is 0. */
int api_beam_read(struct beam_options *beam, struct bmc_options *options, struct err *err) MUST_USE;

/* Opens beam search, after the session; with a width of 0 context->beam stays NULL. */
int api_beam_open(struct bmc_context *context, const struct beam_options *beam, size_t n_best,
                  struct err *err) MUST_USE;

/* Empties all sequences of a context with beam search. */
void api_beam_clear(struct bmc_context *context);

/* Copies the i-th beam of a result. */
int api_beam_copy(struct bmc_result *to, const struct model *model, const struct gen_result *from,
                  size_t i, struct err *err) MUST_USE;

#endif
