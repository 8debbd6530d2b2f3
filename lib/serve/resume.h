/* Resumes sequences of a snapshot (a saved KV cache), with the settings stored there. */
#ifndef BMC_RESUME_H
#define BMC_RESUME_H

#include "decode/gen_types.h"

/* Settings that the user gave: they override those of a snapshot, which override the defaults. */
struct given_settings {
    struct sampler_options sampling; /* sampling_not_given() but for those */
    bool seed;                       /* true: given */
};

/* Sets the sampling settings to resume sequence `index` of a snapshot; without one, of a new sequence. The
 * snapshot's settings replace `defaults`, and given ones replace both. sampling->dry_text is NULL, or the
 * snapshot's, which the caller frees. */
int resume_sampling(const struct given_settings *given, const struct sampler_options *defaults,
                    const struct snapshot *snapshot, size_t index, struct sampler_options *sampling,
                    struct err *err) MUST_USE;

/* Seed to resume sequence `index` of a snapshot: the sequence's own, or `seed` if the user gave it
 * or there is no snapshot. */
uint64_t resume_seed(const struct given_settings *given, uint64_t seed, const struct snapshot *snapshot,
                     size_t index);

/* Makes the request resume a sequence of the snapshot; adds the sequence's tokens to its prompt. */
int resume_sequence(const struct snapshot *snapshot, size_t index, uint64_t seed,
                    struct gen_request *request, struct err *err) MUST_USE;

/* Prompt caching: makes the request reuse KV entries of the longest prefix that its prompt shares
 * with a sequence of the snapshot. False: no shared prefix. */
bool resume_prefix(const struct session *session, const struct snapshot *snapshot,
                   struct gen_request *request);

/* Index of the sequence that a request resumes: the one with id `from`; without `from`, the one
 * with the request's own id, else the only one without an id. Ids are JSON, or NULL. SIZE_MAX with
 * an error: there is none. */
size_t resume_find(const struct snapshot *snapshot, const char *from, const char *id, struct err *err);

#endif
