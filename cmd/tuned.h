/* Finds and reads the tuned profile for all programs. */
#ifndef BMC_TUNED_H
#define BMC_TUNED_H

#include "base/hash.h"
#include "tune/profile.h"

struct tuned {
    struct profile profile;
    bool found;                      /* exists, and matches machine and configuration */
    char target[2 * HASH_BYTES + 1]; /* id of the model in use; model: its entry, or NULL */
    const struct tuned_model *model;
    struct profile_tuner tuner;
};

/* The profile's path: `option` (--profile), else $XDG_CONFIG_HOME/bmc/profile, else
 * $HOME/.config/bmc/profile. False: no home folder. */
bool tuned_path(const char *option, char *path, size_t size);

/* Reads the profile. Ignores an unusable one with one line on stderr, and silently one made with
 * another instruction set, allocator or number of threads; but with --profile it must be usable.
 * `option` may be "none". */
int tuned_open(struct tuned *tuned, const char *program, const char *option, const char *isa,
               enum vm_alloc alloc, int threads, struct err *err) MUST_USE;
void tuned_close(struct tuned *tuned);

/* Selects the entry of a model by its model_id. */
void tuned_select(struct tuned *tuned, const struct hash *model_id);

/* The tuner for kv_spec.tuner; NULL: no profile. */
const struct kv_tuner *tuned_for(struct tuned *tuned, const char *attn, size_t heads);

/* Default of --kv: the fastest policy measured with this model; NULL: unknown. */
const char *tuned_policy(const struct tuned *tuned);

/* T and the shape of drafts found for the model with a draft model (NULL: another drafter), for the
 * attention, cache type, batch size and context of `like`; NULL: unknown. */
const struct tuned_spec *tuned_speculation(const struct tuned *tuned, const struct hash *draft_id,
                                           struct tuned_spec like);

/* Makes the tuner of tuned_for() give this T. */
void tuned_use_speculation(struct tuned *tuned, const struct tuned_spec *spec);

/* This model's batch knee: tokens per step at no extra latency; 0: unknown. */
size_t tuned_batch_knee(const struct tuned *tuned);

#endif
