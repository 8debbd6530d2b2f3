/* Memory of activations: opens a session without weights, which allocates all its buffers. */
#include <stdlib.h>

#include "base/threads.h"
#include "model/weight_kinds.h"
#include "prof/run.h"

/* Sets the dimensions of all matrices, from which operations and their buffers follow; no data is read. */
static void set_dimensions(struct model *model)
{
    static char no_data[1];
    const struct config *c = &model->config;
    for (const struct weight_kind *kind = weight_kinds; kind < weight_kinds + n_weight_kinds; kind++)
        for (size_t l = 0; l < weight_kind_copies(kind, c); l++) {
            struct config own;
            const struct config *of_layer = config_of_layer(c, l, &own);
            if (kind->in != DIM_NONE && weight_kind_has(kind, c, l))
                *(struct mat *)weight_kind_at(kind, &model->weights, l) =
                    (struct mat){.data = no_data,
                                 .out = config_dim(of_layer, kind->out),
                                 .in = config_dim(of_layer, kind->in)};
        }
    if (c->tied_head)
        model->weights.head.weight = model->weights.embed;
}

static int activations_of(const struct run *run, const struct kv_spec *spec, size_t seqs, size_t rows,
                          size_t *bytes, struct err *err)
{
    struct session *session;
    struct model model = {.config = run->config};
    struct session_options options = run_session_options(run, run->N, seqs);
    options.kv = *spec;
    *bytes = 0;
    model.weights.layer = calloc(size_max(run->config.layers, 1), sizeof *model.weights.layer);
    if (!model.weights.layer)
        return err_no_memory(err, "%zu layers", run->config.layers);
    set_dimensions(&model);
    threads_set(run->threads);
    const struct mem_requests before = mem_requests();
    const int rc = session_open(&session, &model, &options, err);
    if (rc == 0) {
        const struct mem_requests after = mem_requests();
        const double most = (double)session_max_tokens(session);
        const double share = (double)size_min(size_max(rows, 1), session_max_tokens(session)) / most;
        /* cleared blocks are resident as a whole, of others the rows of the largest pass; logits of
         * the pass and those kept for each sequence */
        const size_t logits = size_times(2 * sizeof(float), size_times(seqs, run->config.vocab));
        *bytes = size_plus(after.cleared - before.cleared,
                           size_plus((size_t)((double)(after.plain - before.plain) * share), logits));
    }
    session_close(rc == 0 ? session : NULL);
    free(model.weights.layer);
    return rc;
}

int run_activations(const struct run *run, const struct kv_spec *spec, size_t seqs, size_t rows,
                    size_t *bytes, struct err *err)
{
    /* more sequences than a chunk has tokens: buffers grow by the same for each */
    const size_t few = 2 * DEFAULT_CHUNK, many = 2 * few;
    size_t least;
    if (seqs <= many)
        return activations_of(run, spec, seqs, rows, bytes, err);
    if (activations_of(run, spec, few, few, &least, err) < 0 ||
        activations_of(run, spec, many, many, bytes, err) < 0)
        return -1;
    const double each = ((double)*bytes - (double)least) / (double)(many - few);
    const double all = (double)least + each * (double)(seqs - few);
    *bytes = all < 0x1p63 ? (size_t)all : SIZE_MAX;
    return 0;
}
