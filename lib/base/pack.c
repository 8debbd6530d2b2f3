/* Rows become packed blocks: a transposition of words of 4 bytes. */
#include "base/pack.h"

enum { WORD = 4, LINE_WORDS = 16 };

/* One block of `words` words for each of its 16 outputs, from at most 16 rows of `bytes` bytes. */
static void pack_block(char *block, size_t words, const char *rows, size_t stride_bytes, size_t n_rows,
                       size_t bytes)
{
    const size_t whole = bytes / WORD, rest = bytes % WORD;
    const size_t kept = n_rows < PACK_OUT ? 0 : whole; /* words without padding */
    memset(block + kept * PACK_OUT * WORD, 0, (words - kept) * PACK_OUT * WORD);
    /* A cache line of each row at a time. */
    for (size_t from = 0; from < whole; from += LINE_WORDS)
        for (size_t o = 0; o < n_rows; o++)
            for (size_t j = from; j < size_min(from + LINE_WORDS, whole); j++)
                memcpy(block + (j * PACK_OUT + o) * WORD, rows + o * stride_bytes + j * WORD, WORD);
    for (size_t o = 0; rest && o < n_rows; o++)
        memcpy(block + (whole * PACK_OUT + o) * WORD, rows + o * stride_bytes + whole * WORD, rest);
}

void pack_rows(void *packed, size_t n_padded, const void *rows, size_t stride, size_t n_rows, size_t n,
               enum dtype type)
{
    const size_t size = dtype_size(type);
    for (size_t row = 0; row < n_rows; row += PACK_OUT)
        pack_block((char *)packed + row * n_padded * size, n_padded * size / WORD,
                   (const char *)rows + row * stride * size, stride * size,
                   size_min(PACK_OUT, n_rows - row), n * size);
}

void unpack_block(void *rows, const void *block, size_t n_rows, size_t n, enum dtype type)
{
    const size_t bytes = n * dtype_size(type);
    for (size_t o = 0; o < n_rows; o++)
        for (size_t at = 0; at < bytes; at += WORD)
            memcpy((char *)rows + o * bytes + at, (const char *)block + (at * PACK_OUT + o * WORD),
                   size_min(WORD, bytes - at));
}

void mat_fetch_row(float *y, const struct mat *w, size_t row)
{
    for (size_t j = 0; j < w->in; j++) {
        dtype_widen(&y[j], w->dtype, (const char *)w->data + mat_at(w, row, j) * dtype_size(w->dtype),
                    1);
    }
}
