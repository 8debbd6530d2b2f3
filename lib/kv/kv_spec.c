/* Parses cache policies as given to --kv, and returns their properties. */
#include "kv/kv_policy.h"

static const struct kv_policy *find_policy(const char *name, size_t len)
{
    for (size_t i = 0; kv_policies[i]; i++)
        if (strlen(kv_policies[i]->name) == len && memcmp(kv_policies[i]->name, name, len) == 0)
            return kv_policies[i];
    return NULL;
}

static int unknown_policy(const char *text, struct err *err)
{
    char names[128] = "";
    for (size_t i = 0; kv_policies[i]; i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", kv_policies[i]->name);
    }
    return err_set(err, "cache policy \"%s\" is unknown; there are: %s", text, names);
}

int kv_spec_parse(struct kv_spec *spec, const char *text, struct err *err)
{
    const size_t len = strcspn(text, ":");
    *spec = (struct kv_spec){.policy = find_policy(text, len), .slack = 1};
    if (!spec->policy)
        return unknown_policy(text, err);
    if (!text[len])
        return 0;
    if (!spec->policy->growth->parse)
        return err_set(err, "cache policy \"%s\": %s takes no parameter", text, spec->policy->name);
    return spec->policy->growth->parse(spec, text, text + len + 1, err);
}

const char *kv_T_from_name(enum kv_T_from from)
{
    static const char *const name[] = {"policy", "option", "profile", "formula", "default"};
    return name[from];
}

bool kv_spec_needs_T(const struct kv_spec *spec)
{
    return spec->tuned || (spec->policy->growth->in_steps && spec->policy->attend == KV_ATTEND_PADDED &&
                           !spec->T && !spec->r);
}

const char *kv_spec_name(const struct kv_spec *spec) { return spec->policy->name; }

bool kv_spec_attends_valid(const struct kv_spec *spec)
{
    return spec->attend_valid || spec->policy->attend == KV_ATTEND_VALID;
}

bool kv_spec_rolling(const struct kv_spec *spec) { return spec->policy->rolling; }

bool kv_spec_can_lockstep(const struct kv_spec *spec) { return spec->policy->lockstep; }

const char *kv_policy_name(size_t i) { return kv_policies[i] ? kv_policies[i]->name : NULL; }
