/* Sampling settings that a model's maker recommends: defaults of chats. */
#ifndef BMC_CHAT_SAMPLING_H
#define BMC_CHAT_SAMPLING_H

#include "base/mem.h"

/* Named like the members of requests. */
enum chat_setting {
    CHAT_TEMP,
    CHAT_TOP_K,
    CHAT_TOP_P,
    CHAT_MIN_P,
    CHAT_TYPICAL_P,
    CHAT_REPEAT_PENALTY,
    CHAT_REPEAT_LAST_N, /* -1: all tokens */
    CHAT_XTC_PROBABILITY,
    CHAT_XTC_THRESHOLD,
    CHAT_MIROSTAT,
    CHAT_MIROSTAT_TAU,
    CHAT_MIROSTAT_ETA,
    CHAT_SETTINGS
};

/* Zeros: none are recommended. */
struct chat_sampling {
    bool given[CHAT_SETTINGS];
    double value[CHAT_SETTINGS];
};

/* The name of a setting, and the setting of a name: CHAT_SETTINGS if there is none. */
const char *chat_setting_name(enum chat_setting setting);
enum chat_setting chat_setting_find(const char *name);

/* Sets a value; false, without a change, if it is out of range. */
bool chat_sampling_set(struct chat_sampling *sampling, enum chat_setting setting, double value);
bool chat_sampling_any(const struct chat_sampling *sampling);

/* Writes "sampling NAME VALUE" lines. */
int chat_sampling_write(const struct chat_sampling *sampling, struct buf *text,
                        struct err *err) MUST_USE;

/* Writes the given settings as "temp 0.6, top_p 0.9". */
int chat_sampling_describe(const struct chat_sampling *sampling, struct buf *text,
                           struct err *err) MUST_USE;

#endif
