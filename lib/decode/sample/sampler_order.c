/* The order of the sampler's steps. */
#include <string.h>

#include "base/text_util.h"
#include "decode/sample/sampler.h"

const char *const sampler_step_names[SAMPLER_STEPS + 1] = {
    [SAMPLER_DRY] = "dry",           [SAMPLER_TOP_N_SIGMA] = "top_n_sigma",
    [SAMPLER_TOP_K] = "top_k",       [SAMPLER_TYPICAL] = "typ_p",
    [SAMPLER_TOP_P] = "top_p",       [SAMPLER_MIN_P] = "min_p",
    [SAMPLER_XTC] = "xtc",           [SAMPLER_TEMPERATURE] = "temperature",
    [SAMPLER_MIROSTAT] = "mirostat",
};

int sampler_order_parse(const char *text, struct sampler_order *order, struct err *err)
{
    *order = (struct sampler_order){0};
    for (const char *at = text; *at;) {
        const size_t len = strcspn(at, ";,");
        size_t step = 0;
        while (sampler_step_names[step] && (strlen(sampler_step_names[step]) != len ||
                                            memcmp(sampler_step_names[step], at, len) != 0))
            step++;
        if (step == SAMPLER_STEPS)
            return err_set(err,
                           "\"%s\" is none of the samplers dry, top_n_sigma, top_k, typ_p, top_p, "
                           "min_p, xtc, temperature and mirostat",
                           excerpt_of(at, len).text);
        for (size_t i = 0; i < order->n; i++)
            if (order->step[i] == step)
                return err_set(err, "the sampler %s is listed twice", sampler_step_names[step]);
        order->step[order->n++] = (uint8_t)step;
        at += len + (at[len] && at[len + 1]);
        if (*at == ';' || *at == ',')
            return err_set(err, "the list of samplers has an empty entry");
    }
    return order->n ? 0 : err_set(err, "the list of samplers is empty");
}

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
