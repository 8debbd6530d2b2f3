/* A tuned profile and the model's entry in it. */
#include "tune/tuned_profile.h"

#include <string.h>

static int read_profile(struct tuned *tuned, const char *path, const struct machine *here,
                        struct err *err)
{
    if (profile_open(&tuned->profile, path, &tuned->found, err) < 0)
        return -1;
    const struct profile *p = &tuned->profile;
    struct kv_spec spec;
    int rc = tuned->found ? profile_check_machine(p, here, err) : 0;
    for (size_t i = 0; rc == 0 && i < p->n_models; i++)
        if (p->model[i].policy[0])
            rc = kv_spec_parse(&spec, p->model[i].policy, err);
    return rc < 0 ? err_prefix(err, "%s", path) : 0;
}

int tuned_read(struct tuned *tuned, const char *path, const char *isa, enum vm_alloc alloc, int threads,
               bool *exists, struct err *err)
{
    struct machine here;
    *tuned = (struct tuned){.found = false};
    machine_of(&here, isa, alloc, threads);
    if (read_profile(tuned, path, &here, err) < 0)
        return -1;
    *exists = tuned->found;
    tuned->found = tuned->found && machine_same_settings(&tuned->profile.machine, &here);
    return 0;
}

void tuned_close(struct tuned *tuned)
{
    profile_release(&tuned->profile);
    *tuned = (struct tuned){.found = false};
}

const struct kv_tuner *tuned_for(struct tuned *tuned, const char *attn, size_t heads)
{
    tuned->tuner = profile_tuner(&tuned->profile, attn, heads);
    return tuned->found ? &tuned->tuner.tuner : NULL;
}

void tuned_select(struct tuned *tuned, const struct hash *model_id)
{
    hash_hex(model_id, HASH_BYTES, tuned->target);
    tuned->model = tuned->found ? profile_model(&tuned->profile, tuned->target) : NULL;
}

const char *tuned_policy(const struct tuned *tuned)
{
    return tuned->model && tuned->model->policy[0] ? tuned->model->policy : NULL;
}

const struct tuned_spec *tuned_speculation(const struct tuned *tuned, const struct hash *draft_id,
                                           struct tuned_spec like)
{
    memcpy(like.target, tuned->target, sizeof tuned->target);
    strcpy(like.draft, "-");
    if (draft_id)
        hash_hex(draft_id, HASH_BYTES, like.draft);
    return tuned->found ? profile_spec(&tuned->profile, &like) : NULL;
}

void tuned_use_speculation(struct tuned *tuned, const struct tuned_spec *spec)
{
    tuned->tuner.spec = spec;
}

size_t tuned_batch_knee(const struct tuned *tuned)
{
    return tuned->model ? tuned->model->knee.tokens : 0;
}
