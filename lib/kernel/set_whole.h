/* Rows in int8, and the end of sums that stayed integers over the whole depth. Included by a set's file after set_lines.h. */
#ifndef BMC_SET_WHOLE_H
#define BMC_SET_WHOLE_H

/* Row i of x, from input k on. */
INLINE struct int8_rows row_at(const struct int8_rows *x, size_t i, size_t k)
{
    return (struct int8_rows){
        .code = x->code + i * x->row_bytes + k,
        .scale = (const void *)((const char *)(x->scale + k / FEW_GROUP) + i * x->row_bytes),
        .sum = (const void *)((const char *)(x->sum + k / FEW_HALF) + i * x->row_bytes),
        .row_bytes = x->row_bytes,
    };
}

/* Whole numbers become sums. */
static void end_whole(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    for (size_t b = 0; b < w->blocks; b++)
        for (int g = 0; g < GROUP; g++) {
            const vf step = load_values(DTYPE_Q8C, w, b, 0, g).step;
            for (size_t i = 0; i < rows; i++) {
                float *at = y + i * PANEL_WIDTH + b * LANES + g * VW;
                vf_store(at, __builtin_convertvector((vi)vf_load(at), vf) *
                                 (step * vf_set1(*row_at(x, i, 0).scale)));
            }
        }
}

#endif
