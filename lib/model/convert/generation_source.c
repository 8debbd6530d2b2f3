/* What generation_config.json says: EOS ids and sampling defaults. */
#include "model/convert/generation_source.h"

#include "base/json.h"

int eos_read(struct config *config, const json_t *generation, const json_t *json, const char *folder,
             struct err *err)
{
    const json_t *eos = json_at(generation, "eos_token_id");
    if (!eos || json_is_null(eos))
        eos = json_at(json, "eos_token_id");
    const size_t n = json_is_array(eos) ? json_array_size(eos) : eos && !json_is_null(eos);
    config->n_eos = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(eos) ? json_array_get(eos, i) : eos;
        const double value =
            json_is_number(id) ? json_number_value(id) : -1; /* json_parse() may yield 2.0 */
        if (n > MAX_EOS || !(value >= 0 && value < (double)config->vocab) || value != floor(value))
            return err_set(err, "%s: eos_token_id must be at most %d ids below %zu", folder, MAX_EOS,
                           config->vocab);
        config->eos[config->n_eos++] = (uint32_t)value;
    }
    return 0;
}

/* transformers' value of a setting with do_sample true; -1: not set. */
static double otherwise(size_t setting)
{
    switch (setting) {
    case SAMPLING_temp:
    case SAMPLING_top_p: return 1;
    case SAMPLING_top_k: return 50;
    case SAMPLING_min_p: return 0;
    default: return -1;
    }
}

static void read_setting(const json_t *config, size_t setting, struct chat_sampling *sampling,
                         struct err *ignored)
{
    const char *key = sampling_params[setting].generation;
    const json_t *value = json_at(config, key), *sampled = json_at(config, "do_sample");
    const bool given = value && !json_is_null(value);
    const double number = json_number_value(value);
    /* a penalty also changes greedy decoding */
    if (json_is_false(sampled) && setting != SAMPLING_repeat_penalty &&
        setting != SAMPLING_repeat_last_n)
        return;
    /* a negative top_k is off, too */
    const double used = setting == SAMPLING_top_k ? fmax(number, 0) : number;
    if (given && !(json_is_number(value) && chat_sampling_set(sampling, setting, used)))
        err_set(ignored, "\"%s\" of generation_config.json is not used: it is %s", key,
                json_is_number(value) ? "out of range" : json_type_name(value));
    if (!sampling->given[setting] && json_is_true(sampled) && otherwise(setting) >= 0)
        (void)chat_sampling_set(sampling, setting, otherwise(setting));
}

void sampling_of_source(const struct weight_source *source, struct chat_sampling *sampling,
                        struct err *ignored)
{
    const json_t *config = source->json[SOURCE_GENERATION];
    for (size_t i = 0; i < SAMPLING_COUNT_OF_PARAMS; i++)
        if (sampling_params[i].generation)
            read_setting(config, i, sampling, ignored);
    if (json_is_false(json_at(config, "do_sample")))
        (void)chat_sampling_set(sampling, SAMPLING_temp, 0);
    /* transformers' penalty considers all tokens */
    if (sampling->given[SAMPLING_repeat_penalty] && !sampling->given[SAMPLING_repeat_last_n])
        (void)chat_sampling_set(sampling, SAMPLING_repeat_last_n, -1);
}
