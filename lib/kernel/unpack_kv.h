/* Unpacking of KV entries of 4, 5 and 6 bits (quant/kv_entries.h) to DTYPE_Q8_CHANNEL, which attention multiplies. It
 * has no arithmetic in floating point, so that all processors get the same bits. */
#pragma once

#include "kernel/kernel.h"
#include "quant/kv_entries.h"

/* Converts a tile of ATTEND_TILE entries of d values to consecutive entries of DTYPE_Q8_CHANNEL with the same values.
 * Entries are at tile + rows[i], or consecutive if `rows` is NULL. */
typedef void unpack_function(char *to, enum dtype type, const char *tile, const ptrdiff_t *rows,
                             size_t d);

/* The function for a kernel set. */
unpack_function *unpack_function_of(const struct kernels *kernels);
