/* Template: a K slab, that is KSLAB inputs of a panel of quantised weights, unpacked for
 * gemm_int8.h: quantised values as bytes, scales and mins as f32. */
#pragma once

#include "kernel/template/int8_dot.h"

enum { KSLAB = 256, KSLAB_QTILES = KSLAB / QK_GROUP, KSLAB_GROUPS = KSLAB / QK_HALF };

struct kslab {
    unsigned char byte[PANEL_BLOCKS][KSLAB * NR];
    float scale[KSLAB_GROUPS][PANEL_BLOCKS][NR];
    float magic[KSLAB_GROUPS][PANEL_BLOCKS][NR]; /* magic_term() of the scales */
    float min[KSLAB_GROUPS][PANEL_BLOCKS][NR];
    /* quantised values of each block: in `byte`, or in the panel itself if its type has 8 bits */
    const unsigned char *q[PANEL_BLOCKS];
    size_t qtiles;
};

/* True if the quantised values are copied to `byte`, instead of being read from the panel. */
#ifdef INT8_MATMUL
INLINE bool kslab_copies(enum dtype type) { return (void)type, true; }

/* Stores the lines of register g as int8_matmul.h reads them: two lines as two registers of 8
 * neighbouring inputs of two outputs each. */
INLINE void kslab_store(unsigned char *byte, const vu line[QTILE_LINES], int g)
{
    for (int j = 0; j < QTILE_LINES; j += 2) {
        unsigned char *to = byte + j * PACK_LINE + g * VW * 4;
        *(vu_any *)to = __builtin_shufflevector(line[j], line[j + 1], 0, 4, 1, 5);
        *(vu_any *)(to + PACK_LINE) = __builtin_shufflevector(line[j], line[j + 1], 2, 6, 3, 7);
    }
}
#else
INLINE bool kslab_copies(enum dtype type) { return quant_types[type].bits != 8; }

INLINE void kslab_store(unsigned char *byte, const vu line[QTILE_LINES], int g)
{
    for (int j = 0; j < QTILE_LINES; j++)
        *(vu_any *)(byte + j * PACK_LINE + g * VW * 4) = line[j];
}
#endif

INLINE void kslab_fill_qtile(enum dtype type, struct kslab *kslab, const struct panel *w, size_t block,
                             size_t k, size_t qtile)
{
    k += qtile * QK_GROUP;
    for (int g = 0; g < NR_VECS; g++) {
        vu line[QTILE_LINES];
        if (kslab_copies(type)) {
            load_lines(type, line, qtile_at(type, w, block, k), g);
            kslab_store(&kslab->byte[block][qtile * QTILE_BYTES], line, g);
        }
        for (int i = 0; type != DTYPE_Q8_CHANNEL && i < qtile_groups(type); i++) {
            const struct qscale_vec v = load_qscale(type, w, block, k + i * QK_HALF, g);
            const size_t at = qtile * qtile_groups(type) + i;
            vf_store(&kslab->scale[at][block][g * VW], v.scale);
            vf_store(&kslab->magic[at][block][g * VW], magic_term(v.scale));
            if (quant_has_min(type))
                vf_store(&kslab->min[at][block][g * VW], v.min);
        }
    }
}

/* Prefetches the scales of a weight block for the K slab at input k: they are stored apart from the
 * quantised values. */
INLINE void prefetch_scales(enum dtype type, const struct panel *w, size_t block, size_t k)
{
    UNROLL(for (int p = 0; p < SCALE_KINDS; p++))
    {
        const struct scale_array scales = quant_types[type].scales[p];
        const size_t group_bytes = scales.bytes * NR;
        if (!scales.bytes || !scales.every)
            continue;
        const unsigned char *next =
            w->scales[p] + block * w->block_bytes + (w->k_begin + k) / scales.every * group_bytes;
        for (size_t at = 0; at < KSLAB / scales.every * group_bytes; at += PACK_LINE)
            __builtin_prefetch(next + at, 0, 3);
    }
}

/* Makes weight block b of the K slab a copy of block `other`: micro-kernels may read more blocks
 * than the panel has. */
static void kslab_repeat_block(struct kslab *kslab, size_t b, size_t other)
{
    kslab->q[b] = kslab->q[other];
    for (size_t g = 0; g < KSLAB_GROUPS; g++) {
        memcpy(kslab->scale[g][b], kslab->scale[g][other], sizeof kslab->scale[g][b]);
        memcpy(kslab->magic[g][b], kslab->magic[g][other], sizeof kslab->magic[g][b]);
        memcpy(kslab->min[g][b], kslab->min[g][other], sizeof kslab->min[g][b]);
    }
}

INLINE void kslab_fill_blocks(enum dtype type, struct kslab *kslab, const struct panel *w, size_t k)
{
    for (size_t b = 0; b < w->blocks; b++) {
        const bool fill = type != DTYPE_Q8_CHANNEL || kslab_copies(type);
        kslab->q[b] = kslab_copies(type) ? kslab->byte[b] : qtile_at(type, w, b, k);
        for (size_t qtile = 0; fill && qtile < kslab->qtiles; qtile++)
            kslab_fill_qtile(type, kslab, w, b, k, qtile);
        prefetch_scales(type, w, b, k + KSLAB);
    }
}

/* Unpacks kslab->qtiles q tiles (32 inputs each) of every block of a panel, from input k on,
 * counted from panel->k_begin. */
static void kslab_fill(struct kslab *kslab, const struct panel *panel, size_t k)
{
    const struct panel w = *panel; /* a copy, so that stores to kslab cannot alias it */
    switch ((int)w.type) {         /* a set may have its types in several translation units */
#define FILL(type) kslab_fill_blocks(type, kslab, &w, k)
        QUANT_CASES(FILL)
#undef FILL
    }
    for (size_t b = w.blocks; b < PANEL_BLOCKS; b++)
        kslab_repeat_block(kslab, b, w.blocks - 1);
}

/* What the micro-kernels of gemm_int8.h and int8_matmul.h work on. */
struct int8_tile {
    float *y;
    const char *x; /* interleaved activation rows */
    const struct kslab *kslab;
    size_t block; /* the tile's first weight block */
    bool accumulate;
};

/* DTYPE_Q8_CHANNEL: returns the initial accumulator of activation row i of a tile, which is the
 * zero-point correction for a whole K slab. */
INLINE int32_t channel_start(const int R, const struct int8_tile *tile, int i)
{
    int32_t all = 0;
    for (size_t qtile = 0; qtile < tile->kslab->qtiles; qtile++) {
        int32_t start;
        memcpy(&start, tile->x + qtile * R * INT8_INTERLEAVED_BYTES + INTERLEAVED_START(R, 0, i),
               sizeof start);
        all += start;
    }
    return all;
}

/* Initial sums of tiles that do not accumulate, so that every tile can load its sums. */
static const float zero_sums[ACC_MR * PANEL_WIDTH];
