/* bmc-gen --heads: which heads see all rows, and which the first and the last only. */
#include <string.h>

#include "gen.h"
#include "gen_split.h"

int gen_open_heads(struct gen *gen, struct err *err)
{
    const struct config *c = &gen->model->config;
    if (!gen->options->heads)
        return 0;
    if (gen_splits_model(gen))
        return err_set(err, "--heads goes with a model that is whole: use --split requests");
    return kv_sparse_open(&gen->heads, gen->options->heads, c->layers, c->kv_heads, err);
}

/* Rows that were dropped cannot be stored. */
void gen_check_heads_usage(const struct program *program, const struct gen_options *o)
{
    if (!o->heads)
        return;
    if (!o->kv || strncmp(o->kv, "headwise", strlen("headwise")) != 0)
        opt_usage_error(program, "--heads goes with --kv headwise");
    if (o->save_kv || o->prompt_cache)
        opt_usage_error(program, "--heads goes neither with --save-kv nor with --prompt-cache: rows "
                                 "that a sparse head does not see are not kept");
}
