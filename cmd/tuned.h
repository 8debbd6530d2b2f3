/* The tuned profile, as all programs find and use it. */
#ifndef BMC_TUNED_H
#define BMC_TUNED_H

#include "base/hash.h"
#include "tune/profile.h"

struct tuned {
    struct profile profile;
    bool found; /* the profile is there, and is of this machine and of this set-up */
    const struct tuned_model *model; /* what it says of the model in use; NULL: nothing */
    struct profile_tuner tuner;
};

/* Where the profile lies: what --profile says, else $XDG_CONFIG_HOME/bmc/profile, else $HOME/.config/bmc/profile. False
 * when there is no such place. */
bool tuned_path(const char *option, char *path, size_t size);

/* Reads the profile. One that cannot be used is ignored, after one line on standard error, and so is, silently, one that
 * was made with another instruction set, allocator or number of threads. With --profile it must be usable. `option` may be
 * "none". */
int tuned_open(struct tuned *tuned, const char *program, const char *option, const char *isa,
               enum pages_alloc alloc, int threads, struct err *err) MUST_USE;
void tuned_close(struct tuned *tuned);

/* Looks the model up, by its model_id. */
void tuned_select(struct tuned *tuned, const struct hash *model_id);

/* For kv_spec.tuner; NULL when there is no profile. */
const struct kv_tuner *tuned_for(struct tuned *tuned, const char *attn, size_t heads);

/* The policy when no --kv is given: what was the fastest with this very model; NULL when the profile does not say. */
const char *tuned_policy(const struct tuned *tuned);

/* Rows that a step of this very model may have without taking longer; 0 when the profile does not say. */
size_t tuned_free_rows(const struct tuned *tuned);

#endif
