/* Random weights: a counter-based generator indexes a table of normal quantiles. */
#include "model/synth/synth.h"

#include <stdatomic.h>

#include "base/hash.h"
#include "base/mem.h"
#include "quant/pack.h"
#include "base/threads.h"

enum { TABLE = 65536, PARALLEL_CHUNK = 1 << 16, COLUMNS = 256 };

/* Of matrices of more elements so many blocks are random, if the rest may repeat them. */
enum { REPEATED = 8, REPEATED_FROM = 1 << 19 };

/* The standard normal quantile of p by Halley's method on erfc, exact to a double's last bits. */
static double quantile(double p)
{
    if (p > 0.5)
        return -quantile(1 - p);
    double x = -sqrt(-2 * log(p)); /* starting point */
    for (int i = 0; i < 60; i++) {
        const double error = 0.5 * erfc(-x / M_SQRT2) - p;
        const double density = exp(-x * x / 2) / sqrt(2 * M_PI);
        const double step = error / density / (1 + x * error / density / 2);
        x -= step;
        if (fabs(step) < 1e-15 * fabs(x))
            break;
    }
    return x;
}

bool synth_open(struct synth *synth, uint64_t seed)
{
    synth->seed = seed;
    synth->quantile = mem_alloc(TABLE, sizeof(float));
    if (!synth->quantile)
        return false;
    for (size_t i = 0; i < TABLE; i++)
        synth->quantile[i] = (float)(0.02 * quantile(((double)i + 0.5) / TABLE));
    return true;
}

void synth_close(struct synth *synth) { free(synth->quantile); }

static uint64_t stream_of(const struct synth *synth, size_t tensor)
{
    return hash_mix64(hash_mix64(synth->seed + 0x9e3779b97f4a7c15u) + tensor);
}

static void fill_range(const struct synth *synth, uint64_t stream, size_t first, size_t n,
                       enum dtype type, void *out)
{
    enum { CHUNK = 256 };
    float x[CHUNK];
    for (size_t from = 0, many; from < n; from += many) {
        many = size_min(CHUNK, n - from);
        for (size_t i = 0; i < many; i++) {
            /* four elements share 64 bits, 16 bits for each */
            const size_t at = first + from + i;
            const uint64_t bits = hash_mix64(stream + (at / 4 + 1) * 0x9e3779b97f4a7c15u);
            x[i] = synth->quantile[bits >> 16 * (at % 4) & 0xffff];
        }
        dtype_from_f32((char *)out + from * dtype_size(type), type, x, many);
    }
}

/* A tensor to fill in parallel, in row-major or packed layout. */
struct fill_job {
    const struct synth *synth;
    uint64_t stream;
    enum dtype type;
    char *to;
    size_t first, n; /* row-major: range of elements */
    size_t out, in;  /* packed: shape of the matrix, whose elements begin at `first` */
    atomic_bool *failed;
};

static void fill_chunk(void *arg, size_t index)
{
    const struct fill_job *f = arg;
    const size_t i = index * PARALLEL_CHUNK;
    fill_range(f->synth, f->stream, f->first + i, size_min(PARALLEL_CHUNK, f->n - i), f->type,
               f->to + i * dtype_size(f->type));
}

void synth_fill(const struct synth *synth, size_t tensor, size_t first, size_t n, enum dtype type,
                void *out)
{
    struct fill_job fill_job = {synth, stream_of(synth, tensor), type, out, .first = first, .n = n};
    parallel_for(div_up(n, PARALLEL_CHUNK), 4 * n, fill_chunk, &fill_job);
}

/* Fills one block of the packed layout, PACK_OUT output rows, of a quantised matrix. */
static void fill_quantized_block(const struct fill_job *f, size_t block)
{
    const size_t in = f->in, row = dtype_row_bytes(f->type, in);
    const size_t n_rows = size_min(PACK_OUT, f->out - block * PACK_OUT);
    AUTO(free_auto) float *x = mem_alloc(in, sizeof *x);
    AUTO(free_auto) char *rows = mem_alloc(n_rows, row);
    for (size_t o = 0; x && rows && o < n_rows; o++) {
        fill_range(f->synth, f->stream, f->first + (block * PACK_OUT + o) * in, in, DTYPE_F32, x);
        dtype_from_f32(rows + o * row, f->type, x, in);
    }
    const size_t in_padded = layout_in(LAYOUT_PACKED, in);
    if (x && rows)
        pack_rows(f->to + block * pack_block_bytes(f->type, in_padded), in_padded, rows, in, n_rows, in,
                  f->type);
    else
        atomic_store(f->failed, true);
}

/* Fills one block of a packed matrix; if it is not quantised, COLUMNS columns at a time. */
static void fill_block(void *arg, size_t block)
{
    const struct fill_job *f = arg;
    if (dtype_is_quantized(f->type)) {
        fill_quantized_block(f, block);
        return;
    }
    float rows[PACK_OUT * COLUMNS]; /* elements of `type`, at most 4 bytes each */
    const size_t size = dtype_size(f->type), in = f->in, in_padded = layout_in(LAYOUT_PACKED, in);
    const size_t n_rows = size_min(PACK_OUT, f->out - block * PACK_OUT);
    char *packed = f->to + block * PACK_OUT * in_padded * size;
    for (size_t k = 0; k < in; k += COLUMNS) {
        const size_t n = size_min(COLUMNS, in - k), n_padded = size_min(COLUMNS, in_padded - k);
        for (size_t o = 0; o < n_rows; o++)
            fill_range(f->synth, f->stream, f->first + (block * PACK_OUT + o) * in + k, n, f->type,
                       (char *)rows + o * n * size);
        pack_rows(packed + k * PACK_OUT * size, n_padded, rows, n, n_rows, n, f->type);
    }
}

/* Copies a block from one of the first. */
static void repeat_block(void *arg, size_t index)
{
    const struct fill_job *f = arg;
    const size_t bytes = pack_block_bytes(f->type, layout_in(LAYOUT_PACKED, f->in));
    memcpy(f->to + (REPEATED + index) * bytes, f->to + index % REPEATED * bytes, bytes);
}

bool synth_fill_packed(const struct synth *synth, size_t tensor, size_t index, const struct mat *mat,
                       void *packed)
{
    const size_t blocks = div_up(mat->out, PACK_OUT), elements = mat->out * mat->in;
    const size_t own = synth->repeats && elements > REPEATED_FROM ? size_min(blocks, REPEATED) : blocks;
    atomic_bool failed = false;
    struct fill_job fill_job = {.synth = synth,
                                .stream = stream_of(synth, tensor),
                                .type = mat->dtype,
                                .to = packed,
                                .first = index * mat->out * mat->in,
                                .out = mat->out,
                                .in = mat->in,
                                .failed = &failed};
    parallel_for(own, 4 * elements, fill_block, &fill_job);
    parallel_for(blocks - own, elements, repeat_block, &fill_job);
    return !failed;
}
