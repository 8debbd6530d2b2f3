/* Ranges of keys and values. */
#include "prof/cache_ranges.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

static int measure_head(struct kv_extent *range, struct session *session, size_t layer, bool v,
                        size_t head, float *rows, struct err *err)
{
    struct kv *kv = session_kv(session);
    const size_t n = kv_seq_info(kv, 0).n * kv_sizes_of(&kv_setup(kv)->shape, layer)->head_dim;
    if (kv_read(kv, 0, layer, v, head, rows, err) < 0)
        return -1;
    *range = (struct kv_extent){rows[0], rows[0]};
    for (size_t i = 0; i < n; i++) {
        if (!(fabs((double)rows[i]) <= KV_SCALES_LARGEST))
            return err_set(err,
                           "layer %zu, head %zu: %s has the value %g, shared scales are for at most %g",
                           layer, head, v ? "V" : "K", (double)rows[i], KV_SCALES_LARGEST);
        range->low = fminf(range->low, rows[i]);
        range->high = fmaxf(range->high, rows[i]);
    }
    return 0;
}

static int measure_all(struct kv_scales *s, struct session *session, struct err *err)
{
    const struct kv_shape *shape = &kv_setup(session_kv(session))->shape;
    float *rows = mem_alloc(session_length(session, 0), kv_shape_dim(shape) * sizeof *rows);
    int rc = rows ? 0 : err_no_memory(err, "the values of a head");
    for (size_t l = 0; l < shape->layers; l++) {
        const size_t matrices = kv_matrices(kv_sizes_of(shape, l));
        for (size_t i = 0; rc == 0 && i < matrices * kv_sizes_of(shape, l)->kv_heads; i++) {
            const size_t v = i % matrices, head = i / matrices;
            rc = measure_head(&s->range[kv_scales_index(shape, l, v, head)], session, l, v, head, rows,
                              err);
        }
    }
    free(rows);
    return rc;
}

int cache_ranges_measure(struct kv_scales *scales, const struct run *run, const struct model *model,
                         const uint32_t *id, size_t n, struct err *err)
{
    struct session *session = NULL;
    struct session_options options = run_session_options(run, n, 1);
    const struct kv_shape shape = config_kv_shape(&model->config, n, DTYPE_F32);
    options.kv_type = DTYPE_F32;
    *scales = (struct kv_scales){.n = kv_scales_count(&shape)};
    if (!n)
        return err_set(err, "the text has no tokens: give a longer text");
    scales->range = mem_alloc(scales->n, sizeof *scales->range);
    int rc = scales->range ? 0 : err_no_memory(err, "%zu ranges", scales->n);
    if (rc == 0 && (kv_spec_parse(&options.kv, "upfront", err) < 0 ||
                    session_open(&session, model, &options, err) < 0 ||
                    run_text(session, run, id, n, err) < 0 || measure_all(scales, session, err) < 0))
        rc = -1;
    session_close(session);
    if (rc < 0)
        kv_scales_release(scales);
    return rc;
}
