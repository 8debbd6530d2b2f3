/* Packs rows of weight matrices into blocks of 16 outputs (pack.h), and back: unquantised ones by transposing words,
 * quantised ones through q tiles, the quantised values of 32 inputs of one output, a byte each. Helpers are inlined
 * into one function per type, where all sizes are constants. */
#include "quant/pack.h"

#include "quant/ternary.h"

#define INLINE static inline __attribute__((always_inline))

enum { QTILE = QK_GROUP, QTILE_WORDS = QTILE / 8 };

/* The lowest 4 bits, 2 bits and bit of every byte. */
static const uint64_t four_bits = 0x0f0f0f0f0f0f0f0f, two_bits = 0x0303030303030303,
                      one_bit = 0x0101010101010101;

struct qtile {
    uint64_t word[QTILE_WORDS]; /* 8 neighbouring quantised values each */
};

INLINE uint64_t load_row(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

INLINE uint64_t load(const unsigned char *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

INLINE void store(unsigned char *at, uint64_t word)
{
    const uint32_t lower = (uint32_t)word;
    memcpy(at, &lower, sizeof lower);
}

/* Clears all but the first n quantised values of a tile. */
INLINE void qtile_cut(struct qtile *qtile, size_t n)
{
    if (n < QTILE)
        memset((char *)qtile + n, 0, QTILE - n);
}

/* ---- q tiles from and to rows ---- */

/* Loads the n quantised values at `row` into a tile, one per byte. */
INLINE struct qtile qtile_from_row(enum dtype type, const unsigned char *row, size_t n)
{
    struct qtile qtile = {{0}};
    if (quant_types[type].bits != 4)
        memcpy(&qtile, row, n);
    else
        for (size_t i = 0; i < QTILE_WORDS / 2; i++) {
            qtile.word[i] = load_row(row + 8 * i) & four_bits;
            qtile.word[QTILE_WORDS / 2 + i] = load_row(row + 8 * i) >> 4 & four_bits;
        }
    return qtile;
}

INLINE void qtile_to_row(enum dtype type, unsigned char *row, const struct qtile *qtile, size_t n)
{
    if (quant_types[type].bits != 4)
        memcpy(row, qtile, n);
    else
        for (size_t i = 0; i < QTILE_WORDS / 2; i++) {
            const uint64_t both = qtile->word[i] | qtile->word[QTILE_WORDS / 2 + i] << 4;
            memcpy(row + 8 * i, &both, sizeof both);
        }
}

/* ---- q tiles from and to blocks ---- */

/* Loads the tile of output o from a tile of a block. A word of the tile has two words of the block
 * if its type has 8 bits; otherwise, unless it is ternary, a line has 4 bits of one of the tile's words,
 * 2 bits of two, or 1 bit of all four (quant/pack.h). */
INLINE struct qtile qtile_from_block(enum dtype type, const unsigned char *tile, size_t o)
{
    const unsigned bits = quant_types[type].bits;
    const unsigned char *lane = tile + o * 4;
    struct qtile qtile = {{0}};
    if (quant_types[type].ternary) {
        ternary_unpack((unsigned char *)qtile.word, tile, o);
        return qtile;
    }
    for (size_t i = 0; i < QTILE_WORDS && bits == 8; i++)
        qtile.word[i] = load(lane + 2 * i * PACK_LINE) | load(lane + (2 * i + 1) * PACK_LINE) << 32;
    for (size_t i = 0; i < QTILE_WORDS && bits & 4; i++) {
        const uint64_t line = load(lane + i * PACK_LINE);
        qtile.word[i] = (line | line << 28) & four_bits;
    }
    lane += (bits & 4) * PACK_LINE;
    for (size_t i = 0; i < QTILE_WORDS && bits & 2; i++) {
        const uint64_t line = load(lane + i / 2 * PACK_LINE) >> i % 2 * 4;
        qtile.word[i] |= ((line | line << 30) & two_bits) << (bits & 4);
    }
    lane += (bits & 2) * PACK_LINE;
    for (size_t i = 0; i < QTILE_WORDS && bits & 1; i++) {
        const uint64_t line = load(lane) >> 2 * i;
        qtile.word[i] |= ((line | line << 31) & one_bit) << (bits & 6);
    }
    return qtile;
}

INLINE void qtile_to_block(enum dtype type, unsigned char *tile, size_t o, const struct qtile *qtile)
{
    const unsigned bits = quant_types[type].bits;
    unsigned char *lane = tile + o * 4;
    if (quant_types[type].ternary) {
        ternary_pack(tile, (const unsigned char *)qtile->word, o);
        return;
    }
    for (size_t i = 0; i < QTILE_WORDS && bits == 8; i++) {
        store(lane + 2 * i * PACK_LINE, qtile->word[i]);
        store(lane + (2 * i + 1) * PACK_LINE, qtile->word[i] >> 32);
    }
    for (size_t i = 0; i < QTILE_WORDS && bits & 4; i++) {
        const uint64_t low = qtile->word[i] & four_bits;
        store(lane + i * PACK_LINE, low | low >> 28);
    }
    lane += (bits & 4) * PACK_LINE;
    for (size_t i = 0; i < QTILE_WORDS && bits & 2; i += 2) {
        const uint64_t first = qtile->word[i] >> (bits & 4) & two_bits,
                       second = qtile->word[i + 1] >> (bits & 4) & two_bits;
        store(lane + i / 2 * PACK_LINE, first | first >> 30 | (second | second >> 30) << 4);
    }
    lane += (bits & 2) * PACK_LINE;
    uint64_t last = 0;
    for (size_t i = 0; i < QTILE_WORDS && bits & 1; i++) {
        const uint64_t bit = qtile->word[i] >> (bits & 6) & one_bit;
        last |= (bit | bit >> 31) << 2 * i;
    }
    if (bits & 1)
        store(lane, last);
}

/* ---- units of grids ---- */

INLINE void grid_to_block(const struct quant_grid *grid, unsigned char *tile, const unsigned char *unit,
                          size_t o)
{
    for (size_t j = 0; j < grid->unit; j++)
        tile[grid_packed_at(grid, o, j)] = unit[j];
}

INLINE void grid_from_block(const struct quant_grid *grid, unsigned char *unit,
                            const unsigned char *tile, size_t o)
{
    for (size_t j = 0; j < grid->unit; j++)
        unit[j] = tile[grid_packed_at(grid, o, j)];
}

/* ---- scales ---- */

/* Copies n elements of a constant size between arrays with strides of to_step and from_step
 * elements. */
INLINE void copy_elements(size_t bytes, unsigned char *to, size_t to_step, const unsigned char *from,
                          size_t from_step, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * to_step * bytes, from + i * from_step * bytes, bytes);
}

/* Copies a scale array from a row to a lane of a block, or back. */
static void copy_scales(size_t bytes, unsigned char *to, size_t to_step, const unsigned char *from,
                        size_t from_step, size_t n)
{
    if (bytes == 1)
        copy_elements(1, to, to_step, from, from_step, n);
    else if (bytes == 2)
        copy_elements(2, to, to_step, from, from_step, n);
    else
        copy_elements(4, to, to_step, from, from_step, n);
}

/* Byte offset in a block of the first element of scale array p that belongs to output o. */
INLINE size_t scales_lane(enum dtype type, size_t n_padded, size_t p, size_t o)
{
    return pack_scales_at(type, n_padded, p) + o * quant_types[type].scales[p].bytes;
}

/* ---- functions with a constant type ---- */

/* Inputs packed per pass over the rows of a block: so few that its lines stay in L1 until they are
 * complete. */
enum { STRIP = 4 * QTILE };

INLINE void q_to_block(enum dtype type, unsigned char *block, size_t o, const unsigned char *row,
                       size_t from, size_t end)
{
    const struct quant_grid *grid = &quant_types[type].grid;
    struct qtile qtile;
    for (; grid->unit && from < end; from += QTILE)
        grid_to_block(grid, block + pack_q_bytes(type, from), row + quant_row_q_bytes(type, from), o);
    for (; from + QTILE <= end; from += QTILE) {
        qtile = qtile_from_row(type, row + quant_row_q_bytes(type, from), QTILE);
        qtile_to_block(type, block + pack_q_bytes(type, from), o, &qtile);
    }
    if (from < end) {
        qtile = qtile_from_row(type, row + quant_row_q_bytes(type, from), end - from);
        qtile_cut(&qtile, end - from);
        qtile_to_block(type, block + pack_q_bytes(type, from), o, &qtile);
    }
}

INLINE void q_to_row(enum dtype type, unsigned char *row, const unsigned char *block, size_t o,
                     size_t from, size_t end)
{
    const struct quant_grid *grid = &quant_types[type].grid;
    struct qtile qtile;
    for (; grid->unit && from < end; from += QTILE)
        grid_from_block(grid, row + quant_row_q_bytes(type, from), block + pack_q_bytes(type, from), o);
    for (; from + QTILE <= end; from += QTILE) {
        qtile = qtile_from_block(type, block + pack_q_bytes(type, from), o);
        qtile_to_row(type, row + quant_row_q_bytes(type, from), &qtile, QTILE);
    }
    if (from < end) {
        qtile = qtile_from_block(type, block + pack_q_bytes(type, from), o);
        qtile_cut(&qtile, end - from);
        qtile_to_row(type, row + quant_row_q_bytes(type, from), &qtile, end - from);
    }
}

/* Copies the scales of inputs [from, from + n) of output o of a block to a row of n inputs; `from` is a multiple of
 * QK_SUPER. */
INLINE void scales_to_row(enum dtype type, unsigned char *row, const unsigned char *block,
                          size_t n_padded, size_t o, size_t from, size_t n)
{
    for (size_t p = 0; p < SCALE_KINDS; p++) {
        const struct scale_array scales = quant_types[type].scales[p];
        const size_t first = scales.every ? from / scales.every : 0;
        copy_scales(scales.bytes, row + quant_row_scales_at(type, n, p), 1,
                    block + scales_lane(type, n_padded, p, o) + first * PACK_OUT * scales.bytes,
                    PACK_OUT, scale_count(scales, n));
    }
}

INLINE void pack_one(enum dtype type, unsigned char *block, size_t n_padded, const unsigned char *rows,
                     size_t n_rows, size_t n)
{
    const size_t row_bytes = quant_row_scales_at(type, n, SCALE_KINDS),
                 bytes = pack_block_bytes(type, n_padded), scales_begin = pack_q_bytes(type, n_padded);
    if (n_rows < PACK_OUT || n < n_padded)
        memset(block, 0, scales_begin);
    memset(block + scales_begin, 0, bytes - scales_begin);
    for (size_t from = 0; from < n; from += STRIP)
        for (size_t o = 0; o < n_rows; o++)
            q_to_block(type, block, o, rows + o * row_bytes, from, size_min(from + STRIP, n));
    for (size_t o = 0; o < n_rows; o++)
        for (size_t p = 0; p < SCALE_KINDS; p++)
            copy_scales(quant_types[type].scales[p].bytes, block + scales_lane(type, n_padded, p, o),
                        PACK_OUT, rows + o * row_bytes + quant_row_scales_at(type, n, p), 1,
                        scale_count(quant_types[type].scales[p], n));
}

INLINE void unpack_one(enum dtype type, unsigned char *rows, const unsigned char *block,
                       size_t n_padded, size_t n_rows, size_t n)
{
    const size_t row_bytes = quant_row_scales_at(type, n, SCALE_KINDS);
    for (size_t from = 0; from < n; from += STRIP)
        for (size_t o = 0; o < n_rows; o++)
            q_to_row(type, rows + o * row_bytes, block, o, from, size_min(from + STRIP, n));
    for (size_t o = 0; o < n_rows; o++)
        scales_to_row(type, rows + o * row_bytes, block, n_padded, o, 0, n);
}

INLINE void fetch_one(enum dtype type, float *y, const struct mat *w, size_t row, size_t from, size_t n)
{
    const unsigned char *block =
        (const unsigned char *)w->data + row / PACK_OUT * pack_block_bytes(type, w->in_padded);
    const size_t o = row % PACK_OUT;
    unsigned char part[2 * QK_SUPER];
    float value[QK_SUPER];
    for (size_t k = from, next; k < from + n; k = next) {
        const size_t first = k / QK_SUPER * QK_SUPER, some = size_min(QK_SUPER, w->in_padded - first);
        next = size_min(first + some, from + n);
        q_to_row(type, part, block + pack_q_bytes(type, first), o, 0, some);
        scales_to_row(type, part, block, w->in_padded, o, first, some);
        dequantize(value, type, part, some);
        memcpy(y + (k - from), value + (k - first), (next - k) * sizeof *y);
    }
}

/* ---- dispatch by type ---- */

/* Packs `n_rows` <= 16 rows of n inputs into one block of n_padded inputs. */
static void repack_quant(enum dtype type, unsigned char *block, size_t n_padded,
                         const unsigned char *rows, size_t n_rows, size_t n)
{
    switch (type) {
#define PACK(type) pack_one(type, block, n_padded, rows, n_rows, n)
        QUANT_CASES(PACK)
#undef PACK
    }
}

static void unpack_quant(enum dtype type, unsigned char *rows, const unsigned char *block,
                         size_t n_padded, size_t n_rows, size_t n)
{
    switch (type) {
#define UNPACK(type) unpack_one(type, rows, block, n_padded, n_rows, n)
        QUANT_CASES(UNPACK)
#undef UNPACK
    }
}

static void fetch_quant(float *y, const struct mat *w, size_t row, size_t from, size_t n)
{
    switch (w->dtype) {
#define FETCH(type) fetch_one(type, y, w, row, from, n)
        QUANT_CASES(FETCH)
#undef FETCH
    }
}

/* ---- unquantised types, and all ---- */

enum { LINE_WORDS = 16 };

/* Bytes of a word, the unit of transposition (pack.h). */
static size_t word_size(enum dtype type) { return dtype_pair(type) * dtype_size(type); }

/* Packs up to 16 rows of `bytes` bytes, `stride_bytes` apart, into a block with room for `words`
 * words per row, padded with zeros. */
INLINE void transpose_block(const size_t word, char *block, size_t words, const char *rows,
                            size_t stride_bytes, size_t n_rows, size_t bytes)
{
    const size_t whole = bytes / word, rest = bytes % word;
    const size_t kept = n_rows < PACK_OUT ? 0 : whole; /* leading words without padding */
    memset(block + kept * PACK_OUT * word, 0, (words - kept) * PACK_OUT * word);
    /* Copies a cache line of each row at a time. */
    for (size_t from = 0; from < whole; from += LINE_WORDS)
        for (size_t o = 0; o < n_rows; o++)
            for (size_t j = from; j < size_min(from + LINE_WORDS, whole); j++)
                memcpy(block + (j * PACK_OUT + o) * word, rows + o * stride_bytes + j * word, word);
    for (size_t o = 0; rest && o < n_rows; o++)
        memcpy(block + (whole * PACK_OUT + o) * word, rows + o * stride_bytes + whole * word, rest);
}

/* Calls transpose_block() with a constant word size: a version is compiled for each size. */
static void pack_block(size_t word, char *block, size_t words, const char *rows, size_t stride_bytes,
                       size_t n_rows, size_t bytes)
{
    if (word == 2)
        transpose_block(2, block, words, rows, stride_bytes, n_rows, bytes);
    else
        transpose_block(4, block, words, rows, stride_bytes, n_rows, bytes);
}

void pack_rows(void *packed, size_t n_padded, const void *rows, size_t stride, size_t n_rows, size_t n,
               enum dtype type)
{
    const size_t size = dtype_size(type), word = word_size(type);
    for (size_t row = 0; row < n_rows; row += PACK_OUT)
        if (dtype_is_quantized(type))
            repack_quant(type,
                         (unsigned char *)packed + row / PACK_OUT * pack_block_bytes(type, n_padded),
                         n_padded, (const unsigned char *)rows + row * dtype_row_bytes(type, n),
                         size_min(PACK_OUT, n_rows - row), n);
        else
            pack_block(word, (char *)packed + row * n_padded * size, n_padded * size / word,
                       (const char *)rows + row * stride * size, stride * size,
                       size_min(PACK_OUT, n_rows - row), n * size);
}

void unpack_block(void *rows, const void *block, size_t n_padded, size_t n_rows, size_t n,
                  enum dtype type)
{
    const size_t bytes = n * dtype_size(type), word = word_size(type);
    if (dtype_is_quantized(type)) {
        unpack_quant(type, rows, block, n_padded, n_rows, n);
        return;
    }
    for (size_t o = 0; o < n_rows; o++)
        for (size_t at = 0; at < bytes; at += word)
            memcpy((char *)rows + o * bytes + at, (const char *)block + (at * PACK_OUT + o * word),
                   size_min(word, bytes - at));
}

void mat_fetch(float *y, const struct mat *w, size_t row, size_t from, size_t n)
{
    if (dtype_is_quantized(w->dtype)) {
        fetch_quant(y, w, row, from, n);
        return;
    }
    for (size_t k = 0; k < n; k++)
        y[k] = dtype_element(w->dtype, w->data, mat_at(w, row, from + k));
}

void mat_fetch_row(float *y, const struct mat *w, size_t row) { mat_fetch(y, w, row, 0, w->in); }
