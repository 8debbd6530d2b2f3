/* Sampling settings that a model's maker recommends: defaults of chats. */
#ifndef BMC_CHAT_SAMPLING_H
#define BMC_CHAT_SAMPLING_H

#include "base/mem.h"
#include "format/sampling.h"

/* By enum sampling_index. Zeros: none are recommended. */
struct chat_sampling {
    bool given[SAMPLING_COUNT_OF_PARAMS];
    double value[SAMPLING_COUNT_OF_PARAMS];
};

/* The setting of a name, of those that models recommend: SAMPLING_COUNT_OF_PARAMS if there is none. */
size_t chat_setting_find(const char *name);

/* Sets a value; false, without a change, if it is out of range. */
bool chat_sampling_set(struct chat_sampling *sampling, size_t setting, double value);
bool chat_sampling_any(const struct chat_sampling *sampling);

/* The program's defaults with those of the model, NULL: none, in their place. */
struct sampler_options chat_sampling_defaults(const struct chat_sampling *sampling);

/* Writes "sampling NAME VALUE" lines. */
int chat_sampling_write(const struct chat_sampling *sampling, struct buf *text,
                        struct err *err) MUST_USE;

/* Writes the given settings as "temp 0.6, top_p 0.9". */
int chat_sampling_describe(const struct chat_sampling *sampling, struct buf *text,
                           struct err *err) MUST_USE;

#endif
