/* Blocks of few bits: rows become codes in lines and planes behind them (base/pack.h), and back. For pack.c. */
#ifndef BMC_PACK_FEW_H
#define BMC_PACK_FEW_H

#include "base/pack.h"

/* One block of n_padded inputs from the first `n_rows` rows, at most 16, of n inputs each; and the way back. */
void pack_few(enum dtype type, unsigned char *block, size_t n_padded, const unsigned char *rows,
              size_t n_rows, size_t n);
void unpack_few(enum dtype type, unsigned char *rows, const unsigned char *block, size_t n_padded,
                size_t n_rows, size_t n);

/* mat_fetch() of a packed matrix of few bits. */
void fetch_few(float *y, const struct mat *w, size_t row, size_t from, size_t n);

#endif
