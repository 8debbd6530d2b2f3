/* A tuned profile and the model's entry in it. */
#ifndef BMC_TUNED_PROFILE_H
#define BMC_TUNED_PROFILE_H

#include "base/hash.h"
#include "tune/profile.h"

struct tuned {
    struct profile profile;
    bool found;                      /* exists, and matches machine and configuration */
    char target[2 * HASH_BYTES + 1]; /* id of the model in use; model: its entry, or NULL */
    const struct tuned_model *model;
    struct profile_tuner tuner;
};

/* Reads a profile; *tuned is to be closed also on error. Not found: there is no such file (*exists says so), or
 * it was made with another instruction set, allocator or number of threads. */
int tuned_read(struct tuned *tuned, const char *path, const char *isa, enum vm_alloc alloc, int threads,
               bool *exists, struct err *err) MUST_USE;
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
