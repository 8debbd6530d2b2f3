/* Sampling defaults of a source. */
#include "model/convert/sampling_source.h"

#include <math.h>

#include "base/json.h"

/* Keys of generation_config.json; those without a default of transformers are of GGUF files. */
static const struct {
    const char *key;
    enum chat_setting setting;
    bool of_distribution; /* without effect on greedy decoding */
    double otherwise;     /* with do_sample true; -1: not set */
} keys[] = {
    {"temperature", CHAT_TEMP, true, 1},
    {"top_k", CHAT_TOP_K, true, 50},
    {"top_p", CHAT_TOP_P, true, 1},
    {"min_p", CHAT_MIN_P, true, 0},
    {"typical_p", CHAT_TYPICAL_P, true, -1},
    {"repetition_penalty", CHAT_REPEAT_PENALTY, false, -1},
    {"repeat_last_n", CHAT_REPEAT_LAST_N, false, -1},
    {"xtc_probability", CHAT_XTC_PROBABILITY, true, -1},
    {"xtc_threshold", CHAT_XTC_THRESHOLD, true, -1},
    {"mirostat", CHAT_MIROSTAT, true, -1},
    {"mirostat_tau", CHAT_MIROSTAT_TAU, true, -1},
    {"mirostat_eta", CHAT_MIROSTAT_ETA, true, -1},
};

void sampling_of_source(const struct weight_source *source, struct chat_sampling *sampling,
                        struct err *ignored)
{
    const json_t *config = source->format->config(source, SOURCE_GENERATION);
    const json_t *sampled = json_at(config, "do_sample");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const json_t *value = json_at(config, keys[i].key);
        const bool given = value && !json_is_null(value);
        const double number = json_number_value(value);
        if (keys[i].of_distribution && json_is_false(sampled))
            continue;
        /* a negative top_k is off, too */
        const double used = keys[i].setting == CHAT_TOP_K ? fmax(number, 0) : number;
        if (given && !(json_is_number(value) && chat_sampling_set(sampling, keys[i].setting, used)))
            err_set(ignored, "\"%s\" of generation_config.json is not used: it is %s", keys[i].key,
                    json_is_number(value) ? "out of range" : json_type_name(value));
        if (!sampling->given[keys[i].setting] && json_is_true(sampled) && keys[i].otherwise >= 0)
            (void)chat_sampling_set(sampling, keys[i].setting, keys[i].otherwise);
    }
    if (json_is_false(sampled))
        (void)chat_sampling_set(sampling, CHAT_TEMP, 0);
    /* transformers' penalty considers all tokens */
    if (sampling->given[CHAT_REPEAT_PENALTY] && !sampling->given[CHAT_REPEAT_LAST_N])
        (void)chat_sampling_set(sampling, CHAT_REPEAT_LAST_N, -1);
}
