/* Sends keys and values that several ranks of a pipeline need. */
#include "model/parallel/forward_relay.h"

#include "base/mem.h"

struct forward_relay {
    size_t n;
    struct relayed {
        size_t layer, width; /* of K, or of V */
        bool received, sent;
        float *rows; /* of a step: K, [rows][width], then V */
    } relayed[];
};

static size_t kv_width_of(const struct model *model, size_t layer)
{
    struct config own;
    return config_kv_width(config_of_layer(&model->config, layer, &own));
}

int forward_relay_open(struct forward *f, struct err *err)
{
    const struct config *c = &f->model->config;
    const struct pipeline *p = &f->pipeline;
    if (!p->ranks)
        return 0;
    struct forward_relay *o = f->relay = mem_zalloc(1, sizeof *o + c->layers * sizeof o->relayed[0]);
    for (size_t l = 0; o && l < c->layers; l++) {
        const size_t width = kv_width_of(f->model, l);
        const bool received = pipeline_receives_kv(p, c, l), sent = pipeline_sends_kv(p, c, l);
        if (!received && !sent)
            continue;
        float *rows = mem_alloc(f->max_rows, 2 * width * sizeof *rows);
        o->relayed[o->n++] = (struct relayed){l, width, received, sent, rows};
        if (!rows)
            return err_no_memory(err, "keys and values of %zu tokens", f->max_rows);
    }
    return o ? 0 : err_no_memory(err, "%zu layers", c->layers);
}

void forward_relay_close(struct forward *f)
{
    for (size_t i = 0; f->relay && i < f->relay->n; i++)
        free(f->relay->relayed[i].rows);
    free(f->relay);
    f->relay = NULL;
}

/* Appends received keys and values to the cache, by way of the buffers of a layer's own. */
static int append_received(struct forward *f, const struct op_step *step, const struct relayed *r,
                           struct err *err)
{
    const struct config *c = &f->model->config;
    const size_t first = f->pipeline.first_layer, n = f->pipeline.n_layers,
                 bytes = step->rows * r->width * 4;
    const struct op append = {
        .kind = OP_APPEND,
        .in = {BUFFER_K, 0, r->width},
        .width = r->width,
        .append = {.v = {BUFFER_V, 0, r->width}, .layer = config_kv_index(c, first, n, r->layer)},
    };
    f->backend->memory->write(f->buffer[BUFFER_K], r->rows, bytes);
    f->backend->memory->write(f->buffer[BUFFER_V], r->rows + step->rows * r->width, bytes);
    return f->backend->run(f->pass, &append, step, (struct row_range){0, step->rows}, err);
}

int forward_relay_receive(struct forward *f, const struct op_step *step, struct err *err)
{
    const struct config *c = &f->model->config;
    for (size_t i = 0; f->relay && i < f->relay->n; i++) {
        const struct relayed *r = &f->relay->relayed[i];
        if (!r->received)
            continue;
        if (pipeline_receive(&f->pipeline, r->rows, 2 * step->rows * r->width, err) < 0)
            return -1;
        if (config_stores_kv(c, f->pipeline.first_layer, f->pipeline.n_layers, r->layer) &&
            append_received(f, step, r, err) < 0)
            return -1;
    }
    return 0;
}

void forward_relay_keep(struct forward *f, const struct op *op, struct row_range rows)
{
    for (size_t i = 0; i < f->relay->n; i++) {
        const struct relayed *r = &f->relay->relayed[i];
        const size_t n = rows.n * r->width;
        if (r->layer != op->layer)
            continue;
        f->backend->memory->read(r->rows, f->buffer[op->in.buffer], n * sizeof *r->rows);
        f->backend->memory->read(r->rows + n, f->buffer[op->out.buffer], n * sizeof *r->rows);
    }
}

int forward_relay_send(const struct forward *f, size_t rows, struct err *err)
{
    for (size_t i = 0; f->relay && i < f->relay->n; i++) {
        const struct relayed *r = &f->relay->relayed[i];
        if (r->sent && pipeline_send(&f->pipeline, r->rows, 2 * rows * r->width, err) < 0)
            return -1;
    }
    return 0;
}
