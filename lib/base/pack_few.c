/* Blocks of few bits. Whatever the type, codes pass through a cell: those of 32 inputs of one output, a byte each. So there
 * are two ways into a cell and two out of it. Functions are inlined into one for each type, where all sizes are constants. */
#include "base/pack_few.h"

#define INLINE static inline __attribute__((always_inline))

enum { CELL = FEW_GROUP, CELL_WORDS = CELL / 8 };

/* Of each byte of a word. */
static const uint64_t four_bits = 0x0f0f0f0f0f0f0f0f, two_bits = 0x0303030303030303;

struct cell {
    uint64_t word[CELL_WORDS]; /* of 8 neighbouring codes, as two words of a block */
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

/* Only the first n codes. */
INLINE void cell_cut(struct cell *cell, size_t n)
{
    if (n < CELL)
        memset((char *)cell + n, 0, CELL - n);
}

/* ---- rows ---- */

/* n codes from `row` on, where the codes of the cell begin. */
INLINE struct cell cell_of_row(enum dtype type, const unsigned char *row, size_t n)
{
    struct cell cell = {{0}};
    if (few_bits[type].bits != 4)
        memcpy(&cell, row, n);
    else
        for (size_t i = 0; i < CELL_WORDS / 2; i++) {
            cell.word[i] = load_row(row + 8 * i) & four_bits;
            cell.word[CELL_WORDS / 2 + i] = load_row(row + 8 * i) >> 4 & four_bits;
        }
    return cell;
}

INLINE void cell_to_row(enum dtype type, unsigned char *row, const struct cell *cell, size_t n)
{
    if (few_bits[type].bits != 4)
        memcpy(row, cell, n);
    else
        for (size_t i = 0; i < CELL_WORDS / 2; i++) {
            const uint64_t both = cell->word[i] | cell->word[CELL_WORDS / 2 + i] << 4;
            memcpy(row + 8 * i, &both, sizeof both);
        }
}

/* ---- blocks ---- */

/* From `lane` on, which is the output's place in the first line of the cell. Codes of 6 bits have their upper two in two
 * lines behind the four of the others; each is of 16 codes, two words of the cell. */
INLINE struct cell cell_of_block(enum dtype type, const unsigned char *lane)
{
    struct cell cell;
    for (size_t i = 0; i < CELL_WORDS; i++)
        if (few_bits[type].bits == 8) {
            cell.word[i] = load(lane + 2 * i * PACK_LINE) | load(lane + (2 * i + 1) * PACK_LINE) << 32;
        } else {
            const uint64_t line = load(lane + i * PACK_LINE);
            cell.word[i] = (line | line << 28) & four_bits;
        }
    for (size_t i = 0; few_bits[type].bits == 6 && i < CELL_WORDS; i++) {
        const uint64_t line = load(lane + (CELL_WORDS + i / 2) * PACK_LINE) >> i % 2 * 4;
        cell.word[i] |= ((line | line << 30) & two_bits) << 4;
    }
    return cell;
}

INLINE void cell_to_block(enum dtype type, unsigned char *lane, const struct cell *cell)
{
    for (size_t i = 0; i < CELL_WORDS; i++)
        if (few_bits[type].bits == 8) {
            store(lane + 2 * i * PACK_LINE, cell->word[i]);
            store(lane + (2 * i + 1) * PACK_LINE, cell->word[i] >> 32);
        } else {
            const uint64_t low = cell->word[i] & four_bits;
            store(lane + i * PACK_LINE, low | low >> 28);
        }
    for (size_t i = 0; few_bits[type].bits == 6 && i < CELL_WORDS; i += 2) {
        const uint64_t first = cell->word[i] >> 4 & two_bits,
                       second = cell->word[i + 1] >> 4 & two_bits;
        store(lane + (CELL_WORDS + i / 2) * PACK_LINE,
              first | first >> 30 | (second | second >> 30) << 4);
    }
}

/* ---- planes ---- */

/* n numbers of a constant size, so many of them apart. */
INLINE void copy_numbers(size_t bytes, unsigned char *to, size_t to_step, const unsigned char *from,
                         size_t from_step, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * to_step * bytes, from + i * from_step * bytes, bytes);
}

/* From or to a row, the other one being a lane of a block. */
static void copy_plane(size_t bytes, unsigned char *to, size_t to_step, const unsigned char *from,
                       size_t from_step, size_t n)
{
    if (bytes == 1)
        copy_numbers(1, to, to_step, from, from_step, n);
    else if (bytes == 2)
        copy_numbers(2, to, to_step, from, from_step, n);
    else
        copy_numbers(4, to, to_step, from, from_step, n);
}

/* Where the lane of output o begins in plane p. */
INLINE size_t plane_lane(enum dtype type, size_t n_padded, size_t p, size_t o)
{
    return pack_plane_at(type, n_padded, p) + o * few_bits[type].plane[p].bytes;
}

/* ---- both, for a type that is a constant ---- */

/* Inputs of all rows at a time: some lines of a block stay in the cache until they are full. */
enum { STRIP = 4 * CELL };

INLINE void codes_to_block(enum dtype type, unsigned char *lanes, const unsigned char *row, size_t from,
                           size_t end)
{
    struct cell cell;
    for (; from + CELL <= end; from += CELL) {
        cell = cell_of_row(type, row + few_code_bytes(type, from), CELL);
        cell_to_block(type, lanes + pack_codes(type, from), &cell);
    }
    if (from < end) {
        cell = cell_of_row(type, row + few_code_bytes(type, from), end - from);
        cell_cut(&cell, end - from);
        cell_to_block(type, lanes + pack_codes(type, from), &cell);
    }
}

INLINE void codes_to_row(enum dtype type, unsigned char *row, const unsigned char *lanes, size_t from,
                         size_t end)
{
    struct cell cell;
    for (; from + CELL <= end; from += CELL) {
        cell = cell_of_block(type, lanes + pack_codes(type, from));
        cell_to_row(type, row + few_code_bytes(type, from), &cell, CELL);
    }
    if (from < end) {
        cell = cell_of_block(type, lanes + pack_codes(type, from));
        cell_cut(&cell, end - from);
        cell_to_row(type, row + few_code_bytes(type, from), &cell, end - from);
    }
}

INLINE void pack_one(enum dtype type, unsigned char *block, size_t n_padded, const unsigned char *rows,
                     size_t n_rows, size_t n)
{
    const size_t row_bytes = few_plane_at(type, n, FEW_PLANES),
                 bytes = pack_block_bytes(type, n_padded), planes = pack_codes(type, n_padded);
    if (n_rows < PACK_OUT || n < n_padded)
        memset(block, 0, planes);
    memset(block + planes, 0, bytes - planes);
    for (size_t from = 0; from < n; from += STRIP)
        for (size_t o = 0; o < n_rows; o++)
            codes_to_block(type, block + o * 4, rows + o * row_bytes, from, size_min(from + STRIP, n));
    for (size_t o = 0; o < n_rows; o++)
        for (size_t p = 0; p < FEW_PLANES; p++)
            copy_plane(few_bits[type].plane[p].bytes, block + plane_lane(type, n_padded, p, o),
                       PACK_OUT, rows + o * row_bytes + few_plane_at(type, n, p), 1,
                       few_count(few_bits[type].plane[p], n));
}

INLINE void unpack_one(enum dtype type, unsigned char *rows, const unsigned char *block,
                       size_t n_padded, size_t n_rows, size_t n)
{
    const size_t row_bytes = few_plane_at(type, n, FEW_PLANES);
    for (size_t from = 0; from < n; from += STRIP)
        for (size_t o = 0; o < n_rows; o++)
            codes_to_row(type, rows + o * row_bytes, block + o * 4, from, size_min(from + STRIP, n));
    for (size_t o = 0; o < n_rows; o++)
        for (size_t p = 0; p < FEW_PLANES; p++)
            copy_plane(few_bits[type].plane[p].bytes, rows + o * row_bytes + few_plane_at(type, n, p),
                       1, block + plane_lane(type, n_padded, p, o), PACK_OUT,
                       few_count(few_bits[type].plane[p], n));
}

/* The cell at input k, k a multiple of 32; lanes are those of the output in its block. */
INLINE void widen_cell(enum dtype type, float *to, const unsigned char *block,
                       const unsigned char *const lane[FEW_PLANES], size_t o, size_t k)
{
    const struct cell cell = cell_of_block(type, block + pack_codes(type, k) + o * 4);
    unsigned char code[CELL];
    memcpy(code, &cell, sizeof code);
    for (size_t half = 0; half < CELL; half += FEW_HALF) {
        const unsigned char *at[FEW_PLANES];
        for (size_t p = 0; p < FEW_PLANES; p++) {
            const struct few_plane plane = few_bits[type].plane[p];
            at[p] = lane[p] + (plane.every ? (k + half) / plane.every : 0) * PACK_OUT * plane.bytes;
        }
        const struct few_values v = few_values(type, at);
        for (size_t i = half; i < half + FEW_HALF; i++)
            to[i] = few_value(type, v, code[i]);
    }
}

INLINE void fetch_one(enum dtype type, float *y, const struct mat *w, size_t row, size_t from, size_t n)
{
    const size_t o = row % PACK_OUT, end = from + n;
    const unsigned char *block =
        (const unsigned char *)w->data + row / PACK_OUT * pack_block_bytes(type, w->in_padded);
    const unsigned char *lane[FEW_PLANES];
    float wide[CELL];
    for (size_t p = 0; p < FEW_PLANES; p++)
        lane[p] = block + plane_lane(type, w->in_padded, p, o);
    for (size_t k = from, next; k < end; k = next) {
        const size_t cell = k / CELL * CELL;
        next = size_min(cell + CELL, end);
        widen_cell(type, wide, block, lane, o, cell);
        memcpy(y + (k - from), wide + (k - cell), (next - k) * sizeof *y);
    }
}

/* ---- for any type ---- */

void pack_few(enum dtype type, unsigned char *block, size_t n_padded, const unsigned char *rows,
              size_t n_rows, size_t n)
{
    switch (type) {
#define PACK(type) pack_one(type, block, n_padded, rows, n_rows, n)
        FEW_CASES(PACK)
#undef PACK
    }
}

void unpack_few(enum dtype type, unsigned char *rows, const unsigned char *block, size_t n_padded,
                size_t n_rows, size_t n)
{
    switch (type) {
#define UNPACK(type) unpack_one(type, rows, block, n_padded, n_rows, n)
        FEW_CASES(UNPACK)
#undef UNPACK
    }
}

void fetch_few(float *y, const struct mat *w, size_t row, size_t from, size_t n)
{
    switch (w->dtype) {
#define FETCH(type) fetch_one(type, y, w, row, from, n)
        FEW_CASES(FETCH)
#undef FETCH
    }
}
