/* Template: kernels of layers with recurrent state: causal convolution, recurrence, gates. */
#pragma once

#include "kernel/template/vec.h"

/* Sums over key_dim run in 4 chains, key i in chain i % 4, which are added in order. RECUR_GROUP registers of
 * columns at a time: their chains fit in registers, and their additions do not wait for each other. */
enum { RECUR_CHAINS = 4, RECUR_GROUP = 2 };

struct recur_sums {
    vf part[RECUR_CHAINS][RECUR_GROUP];
};

INLINE vf recur_sum(const struct recur_sums *sums, int g)
{
    vf sum = sums->part[0][g];
    UNROLL(for (int s = 1; s < RECUR_CHAINS; s++)) sum += sums->part[s][g];
    return sum;
}

/* sums += columns from `column` on of rows [from, from + n) of S times the elements of k, and times their decay if rows
 * have one of their own; n <= RECUR_CHAINS. */
INLINE void recur_read(struct recur_sums *sums, const struct recur *r, bool by_row, size_t column,
                       size_t from, size_t n)
{
    for (size_t s = 0; s < n; s++) {
        const float *row = r->before + (from + s) * RECUR_WIDTH + column;
        const vf k = vf_set1(by_row ? r->k[from + s] * r->decays[from + s] : r->k[from + s]);
        UNROLL(for (int g = 0; g < RECUR_GROUP; g++))
        sums->part[s][g] = vf_fma(vf_load(row + g * VW), k, sums->part[s][g]);
    }
}

/* S = decay S + k d, and sums += q S, for the same elements. */
INLINE void recur_write(struct recur_sums *sums, const struct recur *r, bool by_row, const vf *d,
                        size_t column, size_t from, size_t n)
{
    for (size_t s = 0; s < n; s++) {
        const size_t at = (from + s) * RECUR_WIDTH + column;
        const vf k = vf_set1(r->k[from + s]), q = vf_set1(r->q ? r->q[from + s] : 0);
        const vf decay = vf_set1(by_row ? r->decays[from + s] : r->decay);
        UNROLL(for (int g = 0; g < RECUR_GROUP; g++))
        {
            const vf state = vf_fma(k, d[g], decay * vf_load(r->before + at + g * VW));
            vf_store(r->state + at + g * VW, state);
            sums->part[s][g] = vf_fma(state, q, sums->part[s][g]);
        }
    }
}

/* RECUR_GROUP registers of columns from `column` on. */
INLINE void recur_columns(const struct recur *r, bool by_row, size_t column)
{
    const size_t whole = r->key_dim / RECUR_CHAINS * RECUR_CHAINS;
    struct recur_sums sums = {0};
    vf d[RECUR_GROUP];
    for (size_t i = 0; r->delta && i < whole; i += RECUR_CHAINS)
        recur_read(&sums, r, by_row, column, i, RECUR_CHAINS);
    if (r->delta)
        recur_read(&sums, r, by_row, column, whole, r->key_dim - whole);
    UNROLL(for (int g = 0; g < RECUR_GROUP; g++))
    {
        d[g] = vf_load(r->v + column + g * VW);
        if (r->delta)
            d[g] = vf_set1(r->beta) * (d[g] - vf_set1(by_row ? 1 : r->decay) * recur_sum(&sums, g));
    }
    sums = (struct recur_sums){0};
    for (size_t i = 0; i < whole; i += RECUR_CHAINS)
        recur_write(&sums, r, by_row, d, column, i, RECUR_CHAINS);
    recur_write(&sums, r, by_row, d, column, whole, r->key_dim - whole);
    if (!r->q)
        return;
    UNROLL(for (int g = 0; g < RECUR_GROUP; g++))
    vf_store(r->y + column + g * VW, recur_sum(&sums, g));
}

static void recur(const struct recur *r)
{
    for (size_t column = 0; column < RECUR_WIDTH; column += RECUR_GROUP * VW)
        if (r->decays)
            recur_columns(r, true, column);
        else
            recur_columns(r, false, column);
}

/* Loads n <= VW elements; the others are 0. */
INLINE vf recur_load(const float *x, size_t n) { return n < VW ? (vf)vu_load_some(x, n) : vf_load(x); }

INLINE void recur_store(float *y, vf x, size_t n)
{
    if (n >= VW)
        vf_store(y, x);
    else
        memcpy(y, &x, n * sizeof *y);
}

static void convolve(float *y, const float *const *x, size_t taps, const float *w, size_t stride,
                     const float *bias, size_t n, enum epilogue_act act)
{
    for (size_t j = 0; j < n; j += VW) {
        const size_t some = n - j;
        vf sum = bias ? recur_load(bias + j, some) : (vf){0};
        for (size_t t = 0; t < taps; t++)
            sum = vf_fma(recur_load(w + t * stride + j, some), recur_load(x[t] + j, some), sum);
        recur_store(y + j, vf_activate(act, sum), some);
    }
}

static void gate(float *y, const float *x, const float *g, size_t n, enum epilogue_act act)
{
    for (size_t j = 0; j < n; j += VW)
        recur_store(y + j, vf_activate(act, recur_load(g + j, n - j)) * recur_load(x + j, n - j),
                    n - j);
}

/* Initialisers for the functions of struct kernels that this file defines. */
#define RECUR_SLOTS .recur = recur, .convolve = convolve, .gate = gate
