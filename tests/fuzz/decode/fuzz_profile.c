/* Tuned profiles: accepted ones survive writing and reading, and every lookup has an answer. */
#include <stdlib.h>

#include "tune/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ask(const struct profile *p)
{
    enum kv_T_from from;
    for (size_t i = 0; i < p->n_curves && i < 4; i++) {
        const struct rate_curve *c = &p->curve[i];
        if (c->width % c->group || c->width > 1 << 20)
            continue;
        const struct tune_query q = {.attn = c->attn,
                                     .type = c->type,
                                     .heads = c->width,
                                     .kv_heads = c->width / c->group,
                                     .head_dim = 1,
                                     .layers = 2,
                                     .batch = size_min(c->batch, 64),
                                     .N = 100,
                                     .k = 1,
                                     .m = 1};
        if (profile_T(p, &q, &from) > 100 && from == KV_T_FORMULA)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct profile p, again;
    struct buf text = {0}, twice = {0};
    struct err err;
    if (profile_parse(&p, (const char *)data, size, "fuzz", &err) < 0)
        return 0;
    ask(&p);
    if (profile_write(&p, &text, &err) < 0 ||
        profile_parse(&again, text.data, text.len, "fuzz", &err) < 0 ||
        profile_write(&again, &twice, &err) < 0 || strcmp(text.data, twice.data) != 0)
        abort();
    profile_release(&p);
    profile_release(&again);
    buf_release(&text);
    buf_release(&twice);
    return 0;
}
