/* A piece of a panel of few bits in the form that products in int8 take: codes in bytes, f32 steps, f32 bases. Included by
 * a set's file after set_lines.h. */
#include "kernel/set_whole.h"

enum { PIECE = 256, PIECE_CELLS = PIECE / FEW_GROUP, PIECE_GROUPS = PIECE / FEW_HALF };

/* Groups of inputs in a cell that have a step of their own. */
INLINE int groups_of(enum dtype type) { return few_group(type, FEW_GROUP) == FEW_HALF ? 2 : 1; }

INLINE bool has_base(enum dtype type) { return few_bits[type].plane[FEW_LOW].bytes; }

struct piece {
    unsigned char byte[PANEL_BLOCKS][PIECE * LANES];
    float step[PIECE_GROUPS][PANEL_BLOCKS][LANES], away[PIECE_GROUPS][PANEL_BLOCKS][LANES];
    float base[PIECE_GROUPS][PANEL_BLOCKS][LANES];
    const unsigned char *code[PANEL_BLOCKS]; /* these bytes, or the panel's, where they are bytes */
    size_t cells;
};

INLINE void prepare_cell(enum dtype type, struct piece *piece, const struct panel *w, size_t block,
                         size_t from, size_t cell)
{
    const size_t k = from + cell * FEW_GROUP;
    for (int g = 0; g < GROUP; g++) {
        vu line[CELL_LINES];
        if (few_bits[type].bits != 8) {
            load_lines(type, line, cell_at(type, w, block, k), g);
            for (int j = 0; j < CELL_LINES; j++)
                *(vu_any *)&piece->byte[block][cell * CELL_BYTES + j * PACK_LINE + g * VW * 4] =
                    line[j];
        }
        for (int i = 0; type != DTYPE_Q8C && i < groups_of(type); i++) {
            const struct few_vectors v = load_values(type, w, block, k + i * FEW_HALF, g);
            const size_t at = cell * groups_of(type) + i;
            vf_store(&piece->step[at][block][g * VW], v.step);
            vf_store(&piece->away[at][block][g * VW], steps_away(v.step));
            if (has_base(type))
                vf_store(&piece->base[at][block][g * VW], v.base);
        }
    }
}

/* Scales lie behind all codes: those of the next piece are not fetched with them. */
INLINE void fetch_values(enum dtype type, const struct panel *w, size_t block, size_t k)
{
    UNROLL(for (int p = 0; p < FEW_PLANES; p++))
    {
        const struct few_plane plane = few_bits[type].plane[p];
        const size_t group_bytes = plane.bytes * LANES;
        if (!plane.bytes || !plane.every)
            continue;
        const unsigned char *next =
            w->plane[p] + block * w->block_bytes + (w->from + k) / plane.every * group_bytes;
        for (size_t at = 0; at < PIECE / plane.every * group_bytes; at += PACK_LINE)
            __builtin_prefetch(next + at, 0, 3);
    }
}

/* Block b is another one again: tiles may be wider than a panel. */
static void repeat_block(struct piece *piece, size_t b, size_t other)
{
    piece->code[b] = piece->code[other];
    for (size_t g = 0; g < PIECE_GROUPS; g++) {
        memcpy(piece->step[g][b], piece->step[g][other], sizeof piece->step[g][b]);
        memcpy(piece->away[g][b], piece->away[g][other], sizeof piece->away[g][b]);
        memcpy(piece->base[g][b], piece->base[g][other], sizeof piece->base[g][b]);
    }
}

INLINE void prepare_blocks(enum dtype type, struct piece *piece, const struct panel *w, size_t from)
{
    for (size_t b = 0; b < w->blocks; b++) {
        piece->code[b] = few_bits[type].bits == 8 ? cell_at(type, w, b, from) : piece->byte[b];
        for (size_t cell = 0; type != DTYPE_Q8C && cell < piece->cells; cell++)
            prepare_cell(type, piece, w, b, from, cell);
        fetch_values(type, w, b, from + PIECE);
    }
    for (size_t b = w->blocks; b < PANEL_BLOCKS; b++)
        repeat_block(piece, b, w->blocks - 1);
}

static void prepare(struct piece *piece, const struct panel *given, size_t from)
{
    const struct panel w = *given; /* which no store can change */
    switch (w.type) {
#define PREPARE(type) prepare_blocks(type, piece, &w, from)
        FEW_CASES(PREPARE)
#undef PREPARE
    }
}
