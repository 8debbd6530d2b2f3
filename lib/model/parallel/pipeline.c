/* Pipeline parallelism: sends and receives activations and logits. */
#include "model/parallel/pipeline.h"

#include "base/clock.h"
#include "ranks/ranks_tags.h"

struct pipeline pipeline_open(const struct model *model)
{
    return model->pipeline_parallel ? (struct pipeline){.ranks = model->ranks,
                                                        .first_layer = model->first_layer,
                                                        .n_layers = model->n_layers}
                                    : (struct pipeline){.n_layers = model->config.layers};
}

bool pipeline_sends_kv(const struct pipeline *pipeline, const struct config *c, size_t layer)
{
    const size_t end = pipeline->first_layer + pipeline->n_layers;
    return layer < end && config_kv_read_from(c, layer, end, c->layers);
}

bool pipeline_receives_kv(const struct pipeline *pipeline, const struct config *c, size_t layer)
{
    const size_t first = pipeline->first_layer;
    return layer < first && config_kv_read_from(c, layer, first, c->layers);
}

bool pipeline_is_first(const struct pipeline *pipeline)
{
    return !pipeline->ranks || pipeline->ranks->rank == 0;
}

bool pipeline_is_last(const struct pipeline *pipeline)
{
    return !pipeline->ranks || pipeline->ranks->rank + 1 == pipeline->ranks->size;
}

static int receive(struct pipeline *pipeline, int from, int tag, float *x, size_t floats,
                   struct err *err)
{
    const double start = clock_ms();
    if (ranks_take(pipeline->ranks, from, tag, x, floats * sizeof *x, err) < 0)
        return -1;
    pipeline->wait_ms += clock_ms() - start;
    return 0;
}

static int send(const struct pipeline *pipeline, int to, int tag, const float *x, size_t floats,
                struct err *err)
{
    return pipeline->ranks->ops->send(pipeline->ranks, x, floats * sizeof *x, to, tag, err);
}

static int tag_of(size_t request)
{
    return RANKS_TAG_LOGITS + (int)(request % (RANKS_TAG_END - RANKS_TAG_LOGITS));
}

int pipeline_receive(struct pipeline *pipeline, float *x, size_t floats, struct err *err)
{
    return pipeline_is_first(pipeline)
               ? 0
               : receive(pipeline, pipeline->ranks->rank - 1, RANKS_TAG_ROWS, x, floats, err);
}

int pipeline_send(const struct pipeline *pipeline, const float *x, size_t floats, struct err *err)
{
    return pipeline_is_last(pipeline)
               ? 0
               : send(pipeline, pipeline->ranks->rank + 1, RANKS_TAG_ROWS, x, floats, err);
}

int pipeline_send_logits(const struct pipeline *pipeline, size_t number, const float *logits,
                         size_t floats, struct err *err)
{
    return send(pipeline, 0, tag_of(number), logits, floats, err);
}

int pipeline_receive_logits(struct pipeline *pipeline, size_t number, float *logits, size_t floats,
                            struct err *err)
{
    return receive(pipeline, pipeline->ranks->size - 1, tag_of(number), logits, floats, err);
}
