/* Sends keys and values that several ranks of a pipeline need. */
#include "model/parallel/forward_relay.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct forward_relay {
    size_t n;
    struct relayed {
        size_t layer, width; /* of K, or of V */
        bool received, sent;
        float *rows; /* of a step: K, [rows][width], then V */
    } relayed[];
};

int forward_relay_open(struct forward *f, struct err *err)
{
    const struct config *c = &f->model->config;
    const struct pipeline *p = &f->pipeline;
    if (!p->ranks)
        return 0;
    struct forward_relay *o = f->relay = mem_zalloc(1, sizeof *o + c->layers * sizeof o->relayed[0]);
    for (size_t l = 0; o && l < c->layers; l++) {
        const size_t width = config_kv_width(forward_layer_config(f, l));
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

int forward_relay_receive(struct forward *f, const struct step *step, struct err *err)
{
    const struct config *c = &f->model->config;
    for (size_t i = 0; f->relay && i < f->relay->n; i++) {
        const struct relayed *r = &f->relay->relayed[i];
        const size_t n = step->rows * r->width;
        if (!r->received)
            continue;
        if (pipeline_receive(&f->pipeline, r->rows, 2 * n, err) < 0)
            return -1;
        const struct attn_query *end = step->query + step->n_queries;
        if (!config_stores_kv(c, f->pipeline.first_layer, f->pipeline.n_layers, r->layer))
            continue;
        for (const struct attn_query *q = step->query; q < end; q++)
            kv_append(f->kv, q->seq, f->layer_index[r->layer].kv, r->rows + q->first * r->width,
                      r->rows + n + q->first * r->width, r->width);
    }
    return 0;
}

void forward_relay_keep(struct forward *f, const struct step *step, size_t layer)
{
    for (size_t i = 0; f->relay && i < f->relay->n; i++) {
        const struct relayed *r = &f->relay->relayed[i];
        const size_t n = step->rows * r->width;
        if (r->layer != layer)
            continue;
        memcpy(r->rows, f->k, n * sizeof *f->k);
        memcpy(r->rows + n, f->v, n * sizeof *f->v);
    }
}

int forward_relay_send(const struct forward *f, const struct step *step, struct err *err)
{
    for (size_t i = 0; f->relay && i < f->relay->n; i++) {
        const struct relayed *r = &f->relay->relayed[i];
        if (r->sent && pipeline_send(&f->pipeline, r->rows, 2 * step->rows * r->width, err) < 0)
            return -1;
    }
    return 0;
}
