/* Packs quantised rows into blocks (quant/pack.h), and back; used by pack.c. */
#ifndef BMC_REPACK_QUANT_H
#define BMC_REPACK_QUANT_H

#include "quant/pack.h"

/* repack_quant() packs `n_rows` <= 16 rows of n inputs into one block of n_padded inputs;
 * unpack_quant() unpacks such a block to rows. */
void repack_quant(enum dtype type, unsigned char *block, size_t n_padded, const unsigned char *rows,
                  size_t n_rows, size_t n);
void unpack_quant(enum dtype type, unsigned char *rows, const unsigned char *block, size_t n_padded,
                  size_t n_rows, size_t n);

/* Implements mat_fetch() (pack.h) for packed quantised matrices. */
void fetch_quant(float *y, const struct mat *w, size_t row, size_t from, size_t n);

#endif
