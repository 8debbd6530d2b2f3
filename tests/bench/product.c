/* Times a bare product of packed bf16 weights, each round beside the peak of bf16 products.
 *
 *   product ROWS IN OUT PRECISION THREADS ROUNDS
 *
 * Prints medians, and last the share of the peak. BMC_ISA names a kernel set. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pages.h"
#include "base/threads.h"
#include "bench.h"
#include "kernel/gemm.h"
#include "prof/roof.h"

/* Some other matrix each time, so that weights come from memory as in a model. */
enum { MATRICES = 8 };

static void fill(bf16 *to, size_t n)
{
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        to[i] = bf16_from_f32((float)(state >> 8) / (1 << 24) - .5f);
    }
}

int main(int argc, char **argv)
{
    struct err err;
    size_t number[6];
    if (argc != 7)
        return 2;
    for (int i = 0; i < 6; i++)
        number[i] = strtoul(argv[i + 1], NULL, 10);
    const size_t rows = number[0], in = number[1], out = number[2],
                 rounds = size_min(number[5], MAX_ROUNDS);
    const size_t padded_in = round_up(in, 32), padded_out = round_up(out, LANES);
    enum precision precision;
    struct gemm *gemm;
    kernels_setup();
    const struct kernels *kernels = kernels_select(getenv("BMC_ISA"), &err);
    if (!kernels || precision_parse(&precision, argv[4], kernels, false, &err) < 0)
        die(&err);
    threads_set((int)number[4]);
    struct mat w[MATRICES];
    for (size_t i = 0; i < MATRICES; i++) {
        bf16 *data = pages_get(PAGES_THP, padded_out * padded_in * sizeof *data);
        if (!data)
            return 1;
        fill(data, padded_out * padded_in);
        w[i] = (struct mat){.dtype = DTYPE_BF16,
                            .layout = LAYOUT_PACKED,
                            .out = out,
                            .in = in,
                            .in_padded = padded_in,
                            .data = data};
    }
    float *x = mem_zalloc(rows * in, sizeof *x), *y = mem_zalloc(rows * out, sizeof *y);
    if (!x || !y || gemm_open(&gemm, kernels, precision, rows, in, &err) < 0)
        die(&err);
    for (size_t i = 0; i < rows * in; i++)
        x[i] = (float)(i % 977) / 977 - .5f;

    double ms[MAX_ROUNDS], share[MAX_ROUNDS], peak[MAX_ROUNDS];
    for (size_t r = 0; r < rounds; r++) {
        peak[r] = roof_peak(PEAK_BF16, 3).gop_s;
        if (!(peak[r] > 0))
            peak[r] = roof_peak(PEAK_F32, 3).gop_s;
        const double start = clock_ms();
        for (size_t i = 0; i < MATRICES; i++)
            gemm_run(gemm, &(struct product){.w = &w[i], .y = y, .y_stride = out}, 1, x, in, rows);
        ms[r] = (clock_ms() - start) / MATRICES;
        share[r] = 2e-6 * (double)rows * (double)in * (double)out / ms[r] / peak[r];
    }
    printf("%zu x %zu x %zu, %s, %s: %.3f ms, peak %.1f GFLOP/s, share %.3f\n", rows, in, out,
           kernels->isa, precision_name(precision), median(ms, rounds), median(peak, rounds),
           median(share, rounds));
    return 0;
}
