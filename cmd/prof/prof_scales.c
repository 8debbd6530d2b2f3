/* bmc-prof cache-scales: measures the ranges of keys and values on a text; prints a table and writes the file for
 * --cache-type q8:scales=FILE. */
#include "base/file.h"
#include "base/mem.h"
#include "prof/cache_ranges.h"
#include "prof/prof.h"
#include "prof/rows.h"
#include "text/tokenizer/tokenizer.h"

static int add_row(const struct prof *prof, size_t tokens, size_t layer, size_t head,
                   const struct kv_extent *k, const struct kv_extent *v, struct err *err)
{
    json_t *row = json_object();
    int rc = rows_add_setup(&prof->report, NULL, row, err);
    if (rc == 0)
        rc = rows_merge(row,
                        json_pack("{s:I, s:I, s:I, s:f, s:f}", "tokens", (json_int_t)tokens, "layer",
                                  (json_int_t)layer, "head", (json_int_t)head, "k_low", (double)k->low,
                                  "k_high", (double)k->high),
                        err);
    if (rc == 0 && v)
        rc = rows_merge(
            row, json_pack("{s:f, s:f}", "v_low", (double)v->low, "v_high", (double)v->high), err);
    return rows_end(rc, row, prof->rows, err);
}

static int print(const struct prof *prof, const struct kv_scales *scales, const struct kv_shape *shape,
                 size_t tokens, struct err *err)
{
    for (size_t l = 0; l < kv_scales_layers(shape); l++)
        for (size_t h = 0; h < kv_scales_heads(shape, l); h++) {
            const bool has_v = kv_scales_matrices(shape, l) > 1;
            if (add_row(prof, tokens, l, h, &scales->range[kv_scales_index(shape, l, false, h)],
                        has_v ? &scales->range[kv_scales_index(shape, l, true, h)] : NULL, err) < 0)
                return -1;
        }
    return prof_print(prof, "layer head k_low k_high v_low v_high", err);
}

static int save(const struct prof *prof, const struct kv_scales *scales, const struct kv_shape *shape,
                struct err *err)
{
    const char *path = prof->options->output;
    struct buf text = {0};
    int rc = path ? kv_scales_format(scales, shape, &prof->model->file.model_id, &text, err) : 0;
    if (rc == 0 && path)
        rc = outfile_save(path, text.data, text.len, err);
    buf_release(&text);
    return rc;
}

int prof_scales(const struct prof_options *options, struct err *err)
{
    struct prof prof;
    struct ids ids = {0};
    struct kv_scales scales = {0};
    int rc = prof_open(&prof, options, true, err);
    if (rc == 0)
        rc = prof_read_ids(&prof, &ids, err);
    if (rc == 0)
        rc = cache_ranges_measure(&scales, &prof.report.run, prof.model, ids.id, ids.len, err);
    if (rc == 0) {
        const struct kv_shape shape = config_kv_shape(&prof.model->config, 1, DTYPE_F32);
        rc = save(&prof, &scales, &shape, err);
        if (rc == 0)
            rc = print(&prof, &scales, &shape, ids.len, err);
    }
    kv_scales_release(&scales);
    ids_release(&ids);
    prof_close(&prof);
    return rc;
}
