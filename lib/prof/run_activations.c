/* Memory of activations: opens a session without weights, which allocates all its buffers. */
#include <stdlib.h>

#include "base/threads.h"
#include "prof/run.h"

int run_activations(const struct run *run, const struct kv_spec *spec, size_t seqs, size_t rows,
                    size_t *bytes, struct err *err)
{
    struct session *session;
    struct model model = {.config = run->config};
    struct session_options options = run_session_options(run, run->N, seqs);
    options.kv = *spec;
    *bytes = 0;
    model.weights.layer = calloc(size_max(run->config.layers, 1), sizeof *model.weights.layer);
    if (!model.weights.layer)
        return err_set(err, "out of memory for %zu layers", run->config.layers);
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
