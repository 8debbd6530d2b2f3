/* Weights of few bits become f32. Included by a set's file after set_lines.h; the set's vf_fma rounds once. */

/* to[FEW_GROUP][LANES]: inputs k .. k + 31 of a block. */
INLINE void widen_cell(enum dtype type, float *to, const struct panel *w, size_t block, size_t k)
{
    for (int g = 0; g < GROUP; g++) {
        vu line[CELL_LINES];
        load_lines(type, line, cell_at(type, w, block, k), g);
        for (int half = 0; half < 2; half++) {
            const struct few_vectors v = load_values(type, w, block, k + half * FEW_HALF, g);
            for (int j = half * FEW_HALF; j < (half + 1) * FEW_HALF; j++) {
                const vi code = (vi)(line[j / 4] >> j % 4 * 8 & 255) - few_bits[type].zero;
                vf_store(to + j * LANES + g * VW,
                         vf_fma(v.step, __builtin_convertvector(code, vf), v.base));
            }
        }
    }
}

#define WIDEN(type)                                                                                    \
    for (size_t j = 0; j < depth; j += FEW_GROUP)                                                      \
    widen_cell(type, to + j * LANES, w, block, k + j)

static void widen_few(float *to, const struct panel *w, size_t block, size_t k, size_t depth)
{
    switch (w->type) {
        FEW_CASES(WIDEN)
    }
}
#undef WIDEN
