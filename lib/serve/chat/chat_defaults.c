/* Default sampling settings. */
#include "serve/chat/chat_defaults.h"

#include <stddef.h>

#define AT(field) offsetof(struct sampler_options, field)

/* Fields of the settings; whole numbers are sizes, of which -1 is no limit. */
static const struct {
    bool whole;
    size_t at;
} fields[CHAT_SETTINGS] = {
    [CHAT_TEMP] = {false, AT(temp)},
    [CHAT_TOP_K] = {true, AT(top_k)},
    [CHAT_TOP_P] = {false, AT(top_p)},
    [CHAT_MIN_P] = {false, AT(min_p)},
    [CHAT_TYPICAL_P] = {false, AT(typical_p)},
    [CHAT_REPEAT_PENALTY] = {false, AT(repeat_penalty)},
    [CHAT_REPEAT_LAST_N] = {true, AT(repeat_last_n)},
    [CHAT_XTC_PROBABILITY] = {false, AT(xtc_probability)},
    [CHAT_XTC_THRESHOLD] = {false, AT(xtc_threshold)},
    [CHAT_MIROSTAT] = {true, AT(mirostat)},
    [CHAT_MIROSTAT_TAU] = {false, AT(mirostat_tau)},
    [CHAT_MIROSTAT_ETA] = {false, AT(mirostat_eta)},
};

struct sampler_options default_sampling(const struct chat_sampling *chat)
{
    struct sampler_options s = {
        .top_k = 40,
        .top_p = 0.95,
        .min_p = 0.05,
        .typical_p = 1,
        .xtc_threshold = 0.1,
        .dynatemp_exponent = 1,
        .dry_base = 1.75,
        .dry_allowed_length = 2,
        .mirostat_tau = 5,
        .mirostat_eta = 0.1,
        .repeat_penalty = 1,
        .repeat_last_n = 64,
    };
    for (size_t i = 0; chat && i < CHAT_SETTINGS; i++) {
        char *field = (char *)&s + fields[i].at;
        const double value = chat->value[i];
        if (chat->given[i] && fields[i].whole)
            *(size_t *)(void *)field = value < 0 ? SIZE_MAX : (size_t)value;
        else if (chat->given[i])
            *(double *)(void *)field = value;
    }
    return s;
}
