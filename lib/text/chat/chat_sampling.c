/* Sampling settings that a model's maker recommends. */
#include "text/chat/chat_sampling.h"

#include <math.h>
#include <string.h>

#include "base/number.h"

static const struct {
    const char *name;
    double min, max;
    bool whole;
} settings[CHAT_SETTINGS] = {
    [CHAT_TEMP] = {"temp", 0, 1e9, false},
    [CHAT_TOP_K] = {"top_k", 0, 1e9, true},
    [CHAT_TOP_P] = {"top_p", 0, 1, false},
    [CHAT_MIN_P] = {"min_p", 0, 1, false},
    [CHAT_TYPICAL_P] = {"typical_p", 0, 1, false},
    [CHAT_REPEAT_PENALTY] = {"repeat_penalty", 1e-3, 1e3, false},
    [CHAT_REPEAT_LAST_N] = {"repeat_last_n", -1, 1e9, true},
    [CHAT_XTC_PROBABILITY] = {"xtc_probability", 0, 1, false},
    [CHAT_XTC_THRESHOLD] = {"xtc_threshold", 0, 1, false},
    [CHAT_MIROSTAT] = {"mirostat", 0, 2, true},
    [CHAT_MIROSTAT_TAU] = {"mirostat_tau", 0, 1e3, false},
    [CHAT_MIROSTAT_ETA] = {"mirostat_eta", 0, 1, false},
};

const char *chat_setting_name(enum chat_setting setting) { return settings[setting].name; }

enum chat_setting chat_setting_find(const char *name)
{
    size_t i = 0;
    while (i < CHAT_SETTINGS && strcmp(settings[i].name, name) != 0)
        i++;
    return (enum chat_setting)i;
}

bool chat_sampling_set(struct chat_sampling *sampling, enum chat_setting setting, double value)
{
    if (!(value >= settings[setting].min && value <= settings[setting].max) ||
        (settings[setting].whole && value != floor(value)) || (setting == CHAT_MIROSTAT && value == 1))
        return false;
    sampling->given[setting] = true;
    sampling->value[setting] = value;
    return true;
}

bool chat_sampling_any(const struct chat_sampling *sampling)
{
    bool any = false;
    for (size_t i = 0; i < CHAT_SETTINGS; i++)
        any |= sampling->given[i];
    return any;
}

int chat_sampling_write(const struct chat_sampling *sampling, struct buf *text, struct err *err)
{
    char number[NUMBER_TEXT_SIZE];
    for (size_t i = 0; i < CHAT_SETTINGS; i++) {
        number_text(sampling->value[i], number);
        if (sampling->given[i] && buf_addf(text, err, "sampling %s %s\n", settings[i].name, number) < 0)
            return -1;
    }
    return 0;
}

int chat_sampling_describe(const struct chat_sampling *sampling, struct buf *text, struct err *err)
{
    char number[NUMBER_TEXT_SIZE];
    for (size_t i = 0; i < CHAT_SETTINGS; i++) {
        number_text(sampling->value[i], number);
        if (sampling->given[i] &&
            buf_addf(text, err, "%s%s %s", text->len ? ", " : "", settings[i].name, number) < 0)
            return -1;
    }
    return 0;
}
