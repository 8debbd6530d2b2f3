/* Sampling settings that a model's maker recommends. */
#include "text/chat/chat_sampling.h"

#include "base/number.h"

size_t chat_setting_find(const char *name)
{
    const size_t param = sampling_find(name);
    return param < SAMPLING_COUNT_OF_PARAMS && sampling_params[param].generation
               ? param
               : SAMPLING_COUNT_OF_PARAMS;
}

bool chat_sampling_set(struct chat_sampling *sampling, size_t setting, double value)
{
    struct sampler_options scratch;
    if (!sampling_set(&scratch, setting, value) ||
        (value < 0 && sampling_params[setting].kind != SAMPLING_TOKENS))
        return false;
    sampling->given[setting] = true;
    sampling->value[setting] = value;
    return true;
}

struct sampler_options chat_sampling_defaults(const struct chat_sampling *sampling)
{
    struct sampler_options options = sampling_defaults();
    for (size_t i = 0; sampling && i < SAMPLING_COUNT_OF_PARAMS; i++)
        if (sampling->given[i])
            (void)sampling_set(&options, i, sampling->value[i]);
    return options;
}

bool chat_sampling_any(const struct chat_sampling *sampling)
{
    bool any = false;
    for (size_t i = 0; i < SAMPLING_COUNT_OF_PARAMS; i++)
        any |= sampling->given[i];
    return any;
}

int chat_sampling_write(const struct chat_sampling *sampling, struct buf *text, struct err *err)
{
    char number[NUMBER_TEXT_SIZE];
    for (size_t i = 0; i < SAMPLING_COUNT_OF_PARAMS; i++) {
        number_text(sampling->value[i], number);
        if (sampling->given[i] &&
            buf_addf(text, err, "sampling %s %s\n", sampling_params[i].name, number) < 0)
            return -1;
    }
    return 0;
}

int chat_sampling_describe(const struct chat_sampling *sampling, struct buf *text, struct err *err)
{
    char number[NUMBER_TEXT_SIZE];
    for (size_t i = 0; i < SAMPLING_COUNT_OF_PARAMS; i++) {
        number_text(sampling->value[i], number);
        if (sampling->given[i] &&
            buf_addf(text, err, "%s%s %s", text->len ? ", " : "", sampling_params[i].name, number) < 0)
            return -1;
    }
    return 0;
}
