/* The order of the sampler's steps. */
#include "decode/sample/sampler.h"

struct sampler_order sampler_order_of(const struct sampler_options *options)
{
    static const struct sampler_order usual = {{SAMPLER_DRY, SAMPLER_TOP_N_SIGMA, SAMPLER_TOP_K,
                                                SAMPLER_TYPICAL, SAMPLER_TOP_P, SAMPLER_MIN_P,
                                                SAMPLER_XTC, SAMPLER_TEMPERATURE},
                                               8};
    static const struct sampler_order mirostat = {{SAMPLER_DRY, SAMPLER_TEMPERATURE, SAMPLER_MIROSTAT},
                                                  3};
    return options->order.n ? options->order : options->mirostat ? mirostat : usual;
}
