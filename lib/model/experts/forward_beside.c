/* Layers with experts beside their MLP. */
#include "model/experts/forward_beside.h"

#include "model/forward_norm.h"

int forward_beside(struct forward *f, struct row_range rows, size_t layer, struct err *err)
{
    const struct config *c = &f->model->config;
    const struct layer *w = &f->model->weights.layer[layer];
    const size_t at = rows.first * c->hidden;
    if (!c->moe->beside || !c->plan[layer].has_experts)
        return 0;
    if (shard_gather_finish(&f->shard, rows, err) < 0)
        return -1;
    norm_rows(f, f->branch, f->branch, rows, &w->mlp_own_norm);
    norm_rows(f, f->h, f->x, rows, &w->moe_norm);
    if (experts_run(&f->experts, layer, f->h + at, f->x + at, f->beside + at, false, rows.n, err) < 0)
        return -1;
    if (!experts_are_whole(&f->experts)) {
        const size_t first = shard_local_range(&f->shard, DIM_HIDDEN).first;
        if (shard_gather_start(&f->shard, DIM_HIDDEN, f->beside, f->beside + first, c->hidden, rows,
                               err) < 0 ||
            shard_gather_finish(&f->shard, rows, err) < 0)
            return -1;
    }
    norm_rows(f, f->beside, f->beside, rows, &w->moe_post_norm);
    f->kernels->add(f->branch + at, f->beside + at, rows.n * c->hidden);
    return 0;
}
