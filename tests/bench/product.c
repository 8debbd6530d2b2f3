/* Times a GEMM with packed weights, and in each round the rates it is compared with: at which memory is read,
 * and the peak of products.
 *
 *   product ROWS IN OUT PRECISION THREADS ROUNDS [TYPE]
 *
 * TYPE is bf16 or a quantised type. Prints medians of rates and shares, the rate of the fastest product, which says how
 * fast weights are unpacked if all matrices fit in a cache (1 2048 160 int8 1 5), and last the share of peak: that of int8
 * products for PRECISION int8, else of bf16 products, or of f32 if the CPU lacks those. BMC_ISA
 * selects a kernel set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "quant/pack.h"
#include "base/vm.h"
#include "base/threads.h"
#include "bench.h"
#include "kernel/gemm.h"
#include "prof/roofline.h"

/* Number of matrices used in turn, so that weights come from memory as in a model. */
enum { MATRICES = 8, PASSES = 2 };

static float next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return (float)(*state >> 8) / (1 << 24) - .5f;
}

/* Fills a row with random numbers: bytes with f16 scales of 2^-9 in types of two levels and those with
 * a codebook, which are slow to make. */
static void random_row(void *row, enum dtype type, float *wide, size_t in, uint32_t *state)
{
    const bool quantized = dtype_is_quantized(type);
    unsigned char *bytes = row;
    for (size_t k = 0; k < in; k++)
        wide[k] = next_random(state);
    if (!quantized || (!quant_types[type].scales[SCALE_D].bytes && !quant_types[type].codebook)) {
        dtype_from_f32(row, type, wide, in);
        return;
    }
    for (size_t i = 0; i < dtype_row_bytes(type, in); i++)
        bytes[i] = (unsigned char)(next_random(state) * 256);
    for (size_t p = 0; p < SCALE_KINDS; p++)
        for (size_t i = 0; i < scale_count(quant_types[type].scales[p], in); i++)
            if (quant_types[type].scales[p].bytes == sizeof(f16))
                quant_store_f16(bytes + quant_row_scales_at(type, in, p) + i * sizeof(f16), 0x1p-9f);
            else if (quant_types[type].power) /* not so small that sums are denormal */
                bytes[quant_row_scales_at(type, in, p) + i] |= 0x78;
}

/* A packed matrix of random numbers. */
static void *random_packed(enum dtype type, size_t out, size_t in)
{
    const size_t row = dtype_row_bytes(type, in), block = pack_block_bytes(type, round_up(in, PACK_IN));
    char *packed = vm_get(VM_THP, div_up(out, NR) * block), *rows = mem_alloc(NR, row);
    float *wide = mem_alloc(in, sizeof *wide);
    uint32_t state = 1;
    for (size_t o = 0; packed && rows && wide && o < out; o += NR) {
        const size_t many = size_min(NR, out - o);
        for (size_t i = 0; i < many; i++)
            random_row(rows + i * row, type, wide, in, &state);
        pack_rows(packed + o / NR * block, round_up(in, PACK_IN), rows, in, many, in, type);
    }
    free(rows);
    free(wide);
    return packed;
}

/* Makes MATRICES copies of one random matrix. */
static bool make_matrices(struct mat *w, enum dtype type, size_t out, size_t in)
{
    const size_t bytes = layout_bytes(LAYOUT_PACKED, type, out, in);
    for (size_t i = 0; i < MATRICES; i++) {
        void *data = i ? vm_get(VM_THP, bytes) : random_packed(type, out, in);
        if (!data)
            return false;
        if (i)
            memcpy(data, w[0].data, bytes);
        w[i] = (struct mat){.dtype = type,
                            .layout = LAYOUT_PACKED,
                            .out = out,
                            .in = in,
                            .in_padded = round_up(in, PACK_IN),
                            .data = data};
    }
    return true;
}

static enum dtype type_called(const char *name)
{
    enum dtype type;
    return dtype_parse(name, &type) ? type : DTYPE_COUNT;
}

static double peak_gflop_s(enum precision precision)
{
    const double narrow = roof_peak(precision == PRECISION_INT8 ? PEAK_INT8 : PEAK_BF16, 3).gop_s;
    return narrow > 0 ? narrow : roof_peak(PEAK_F32, 3).gop_s;
}

int main(int argc, char **argv)
{
    struct err err;
    size_t number[6];
    if (argc != 7 && argc != 8)
        return 2;
    for (int i = 0; i < 6; i++)
        number[i] = strtoul(argv[i + 1], NULL, 10);
    const size_t rows = number[0], in = number[1], out = number[2],
                 rounds = size_min(number[5], MAX_ROUNDS);
    const enum dtype type = argc == 8 ? type_called(argv[7]) : DTYPE_BF16;
    if (type == DTYPE_COUNT)
        return 2;
    enum precision precision;
    struct gemm *gemm;
    kernels_setup();
    const struct kernels *kernels = kernels_select(getenv("BMC_ISA"), &err);
    if (!kernels ||
        precision_parse(&precision, argv[4], kernels, weights_class_of(type), NULL, &err) < 0)
        die(&err);
    threads_set((int)number[4]);
    struct mat w[MATRICES];
    if (!make_matrices(w, type, out, in))
        return 1;
    float *x = mem_zalloc(rows * in, sizeof *x), *y = mem_zalloc(rows * out, sizeof *y);
    if (!x || !y || gemm_open(&gemm, kernels, precision, rows, in, &err) < 0)
        die(&err);
    for (size_t i = 0; i < rows * in; i++)
        x[i] = (float)(i % 977) / 977 - .5f;

    const double gb = (double)layout_bytes(LAYOUT_PACKED, type, out, in) * 1e-9;
    struct roof_block block;
    if (roof_block_open(&block, MATRICES * layout_bytes(LAYOUT_PACKED, type, out, in), &err) < 0)
        die(&err);
    double fastest = INFINITY, ms[MAX_ROUNDS], share[MAX_ROUNDS], peak[MAX_ROUNDS], read[MAX_ROUNDS],
           of_read[MAX_ROUNDS];
    for (size_t r = 0; r < rounds; r++) {
        peak[r] = peak_gflop_s(precision);
        read[r] = roof_read_gb_s(&block, 1);
        const double start = clock_ms();
        for (size_t i = 0; i < PASSES * MATRICES; i++) {
            const double before = clock_ms();
            gemm_run(gemm, &(struct product){.w = &w[i % MATRICES], .y = y, .y_stride = out}, 1, x, in,
                     rows);
            fastest = fmin(fastest, clock_ms() - before);
        }
        ms[r] = (clock_ms() - start) / (PASSES * MATRICES);
        of_read[r] = gb / ms[r] * 1e3 / read[r];
        share[r] = 2e-6 * (double)rows * (double)in * (double)out / ms[r] / peak[r];
    }
    roof_block_close(&block);
    printf("%zu x %zu x %zu, %s, %s, %s: %.3f ms, %.1f GB/s of weights, %.1f in the fastest of them, "
           "%.3f of the read rate of %.1f GB/s, peak %.1f GFLOP/s, share %.3f\n",
           rows, in, out, dtype_name(type), kernels->isa, precision_name(precision), median(ms, rounds),
           gb / median(ms, rounds) * 1e3, gb / fastest * 1e3, median(of_read, rounds),
           median(read, rounds), median(peak, rounds), median(share, rounds));
    return 0;
}
