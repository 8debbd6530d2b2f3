/* The roofline of this machine: memory bandwidth and peak arithmetic. */
#include "prof/roofline.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/vm.h"
#include "base/threads.h"

/* Peak-rate loops, the fastest first for each operand type. */
static const struct peak *const peaks[] = {
#ifdef __x86_64__
    &peak_amx_bf16, &peak_bf16,     &peak_avx512,      &peak_avx2,      &peak_amx,
    &peak_vnni,     &peak_avxvnni,  &peak_avx512_int8, &peak_avx2_int8,
#elif defined __aarch64__
    &peak_bf16, &peak_neon,     &peak_i8mm, &peak_dotprod, &peak_neon_int8,
#endif
    &peak_ref,      &peak_ref_int8,
};

enum { PIECE = 1 << 20, READ_PIECE = 1 << 18, LINE = 64 };

/* One timed pass over a memory block: reads it, or copies it from `from` to `to`. */
struct pass {
    char *to;
    const char *from;
    size_t bytes, threads;
    size_t step, apart; /* reading: bytes per iteration, and distance of its four loads */
};

static size_t share_begin(const struct pass *pass, size_t thread)
{
    return pass->bytes / PIECE * thread / pass->threads * PIECE;
}

/* Reads chunk `index` of the block. Threads claim chunks dynamically, so that a slow core does not
 * delay the others. */
static void read_piece(void *arg, size_t index)
{
    typedef uint64_t lanes __attribute__((vector_size(64), aligned(8), may_alias));
    const struct pass *pass = arg;
    const char *from = pass->from + index * READ_PIECE;
    lanes sum[4] = {{0}};
    for (size_t i = 0; i < READ_PIECE / sizeof sum; i++)
        for (size_t k = 0; k < 4; k++)
            sum[k] += *(const lanes *)(const void *)(from + i * pass->step + k * pass->apart);
    const lanes all = sum[0] + sum[1] + sum[2] + sum[3];
    volatile uint64_t keep = all[0] + all[1] + all[2] + all[3] + all[4] + all[5] + all[6] + all[7];
    (void)keep;
}

static void copy_share(void *arg, size_t thread)
{
    const struct pass *pass = arg;
    const size_t end = share_begin(pass, thread + 1);
    for (size_t at = share_begin(pass, thread); at < end; at += PIECE)
        memcpy(pass->to + at, pass->from + at, PIECE);
}

static double pass_ms(threads_body *share, struct pass *pass)
{
    const double start = clock_ms();
    threads_all(share, pass);
    return clock_ms() - start;
}

static double read_ms(struct pass *pass)
{
    const double start = clock_ms();
    parallel_for(pass->bytes / READ_PIECE, pass->bytes, read_piece, pass);
    return clock_ms() - start;
}

static double touch_ns(char *block, size_t bytes)
{
    const double start = clock_ms();
    for (size_t at = 0; at < bytes; at += 4096)
        *(volatile char *)(block + at) = 1;
    return (clock_ms() - start) * 1e6 / ((double)bytes / 4096);
}

/* A few milliseconds: short bursts suffer less from other processes, and the fastest one counts. */
enum { ROUNDS = 600000 };

struct peaking {
    const struct peak *peak;
    _Atomic uint64_t work; /* multiply-adds, summed over all threads */
};

static void run_peak(void *arg, size_t thread)
{
    struct peaking *p = arg;
    float sink = 0;
    (void)thread;
    atomic_fetch_add(&p->work, (uint64_t)p->peak->run(ROUNDS, &sink));
    volatile float keep = sink;
    (void)keep;
}

/* Runs the fastest loop that this CPU supports for an operand type, on all threads. */
struct peak_rate roof_peak(enum peak_kind kind, int repeats)
{
    struct peak_rate best = {0, NULL};
    for (size_t p = 0; p < ARRAY_LEN(peaks) && !best.isa; p++) {
        if (peaks[p]->kind != kind || !peaks[p]->usable())
            continue;
        best.isa = peaks[p]->isa;
        for (int r = 0; r < repeats; r++) {
            struct peaking peaking = {peaks[p], 0};
            const double start = clock_ms();
            threads_all(run_peak, &peaking);
            const double rate = 2 * (double)peaking.work / (clock_ms() - start) / 1e6;
            best.gop_s = rate > best.gop_s ? rate : best.gop_s;
        }
    }
    return best;
}

/* Allocates and touches the block, in huge pages, with which bandwidth is highest. */
int roof_block_open(struct roof_block *block, size_t bytes, struct err *err)
{
    *block = (struct roof_block){NULL, round_up(size_max(bytes, PIECE), PIECE)};
    block->data = vm_get(VM_THP, block->bytes);
    if (!block->data)
        return err_no_memory(err, "a block of %zu bytes to measure with", bytes);
    touch_ns(block->data, block->bytes);
    return 0;
}

void roof_block_close(struct roof_block *block)
{
    vm_free(VM_THP, block->data, block->bytes);
    block->data = NULL;
}

double roof_read_gb_s(const struct roof_block *block, int repeats)
{
    struct pass pass = {.from = block->data, .bytes = block->bytes};
    double best = 0;
    for (int r = 0; r < 2 * repeats; r++) {
        /* Alternates between one and four read streams: which is faster depends on the CPU. */
        pass.step = r % 2 ? 4 * LINE : LINE;
        pass.apart = r % 2 ? LINE : READ_PIECE / 4;
        const double rate = (double)block->bytes / read_ms(&pass) / 1e6;
        best = rate > best ? rate : best;
    }
    return best;
}

double roof_device_gb_s(const struct backend_memory *memory, size_t bytes, int repeats)
{
    char word;
    double best = 0;
    const struct device_addr to = memory->alloc(VM_MMAP, bytes), from = memory->alloc(VM_MMAP, bytes);
    const struct memory_copy copy = {to, from, bytes, 0};
    const bool fits = !addr_is_null(to) && !addr_is_null(from);
    for (int r = 0; fits && r <= repeats; r++) {
        memory->read(&word, to, 1);
        const double start = clock_ms();
        memory->copy(&copy, 1);
        memory->read(&word, to, 1);
        if (r > 0) /* the first one is a warm-up */
            best = fmax(best, 2 * (double)bytes / (clock_ms() - start) / 1e6);
    }
    if (!addr_is_null(to))
        memory->free(VM_MMAP, to, bytes);
    if (!addr_is_null(from))
        memory->free(VM_MMAP, from, bytes);
    return fits ? best : NAN;
}

static bool measure_copying(struct roof *roof, size_t bytes, int repeats)
{
    char *a = vm_get(VM_MMAP, bytes), *b = vm_get(VM_MMAP, bytes);
    struct pass pass = {.to = b, .from = a, .bytes = bytes, .threads = (size_t)threads_now()};
    if (a && b) {
        roof->page_fault_ns = touch_ns(a, bytes);
        pass_ms(copy_share, &pass);
    }
    for (int r = 0; a && b && r < repeats; r++) {
        const double rate = (double)bytes / pass_ms(copy_share, &pass) / 1e6;
        roof->copy_gb_s = rate > roof->copy_gb_s ? rate : roof->copy_gb_s;
    }
    vm_free(VM_MMAP, a, bytes);
    vm_free(VM_MMAP, b, bytes);
    return a && b;
}

/* ---- the limits of some work ---- */

/* The operands that products with weights of a class have. */
static enum peak_kind kind_of(const struct cpu_options *how, enum weights_class weights)
{
    const bool narrow = how->precision == PRECISION_BF16 || how->precision == PRECISION_BF16X2;
    if (weights == WEIGHTS_QUANTISED)
        return how->precision == PRECISION_INT8 ? PEAK_INT8 : PEAK_F32;
    return weights == WEIGHTS_BF16 && narrow && how->kernels->panel_bf16 ? PEAK_BF16 : PEAK_F32;
}

/* The operands that fused attention over a cache of these types has (attn_fused.c). */
static enum peak_kind attention_kind(const struct cpu_options *how, struct kv_types cache)
{
    if (dtype_is_quantized(cache.k) && dtype_is_quantized(cache.v) && how->precision != PRECISION_F32)
        return PEAK_INT8;
    const bool bf16_cache = cache.k == DTYPE_BF16 && cache.v == DTYPE_BF16;
    return bf16_cache && how->precision == PRECISION_BF16 && how->kernels->attend_bf16 ? PEAK_BF16
                                                                                       : PEAK_F32;
}

/* Adds the time of multiply-adds at the peak of `kind`, or of f32 where that is faster, as where products of bf16 are
 * split in two. */
static void add_macs(double ms[PEAK_KINDS], const struct roof *roof, const struct cpu_options *how,
                     enum peak_kind kind, size_t macs)
{
    const bool split = kind == PEAK_BF16 && how->precision == PRECISION_BF16X2;
    double rate = roof->peak[kind].gop_s / (1 + split);
    if (rate < roof->peak[PEAK_F32].gop_s) {
        kind = PEAK_F32;
        rate = roof->peak[PEAK_F32].gop_s;
    }
    if (macs)
        ms[kind] += rate > 0 ? 2 * (double)macs / rate / 1e6 : NAN;
}

struct roof_limit roof_limit(const struct roof *roof, const struct pass_work *work,
                             const struct cpu_options *how, struct kv_types cache)
{
    static const char *const names[PEAK_KINDS] = {"f32", "bf16", "int8"};
    double ms[PEAK_KINDS] = {0}, all = 0;
    enum peak_kind most = 0;
    const double read_ms = roof->read_gb_s > 0 ? (double)work_bytes(work) / roof->read_gb_s / 1e6 : NAN;
    for (enum weights_class class = 0; how && class < WEIGHTS_CLASSES; class ++)
        add_macs(ms, roof, how, kind_of(how, class), work->macs[class]);
    if (how)
        add_macs(ms, roof, how, attention_kind(how, cache), work->attention_macs);
    for (enum peak_kind kind = 0; kind < PEAK_KINDS; kind++) {
        all += ms[kind];
        most = ms[kind] > ms[most] ? kind : most;
    }
    if (isnan(read_ms) || isnan(all))
        return (struct roof_limit){NAN, NULL, NAN};
    return read_ms >= all ? (struct roof_limit){read_ms, "read", roof->read_gb_s}
                          : (struct roof_limit){all, names[most], roof->peak[most].gop_s};
}

/* ---- all of it ---- */

void roof_measure_peaks(struct roof *roof, int repeats)
{
    for (enum peak_kind kind = 0; kind < PEAK_KINDS; kind++)
        roof->peak[kind] = roof_peak(kind, repeats);
}

int roof_measure_limits(struct roof *roof, size_t bytes, struct err *err)
{
    struct roof_block block;
    *roof = (struct roof){0};
    if (roof_block_open(&block, bytes, err) < 0)
        return -1;
    roof->read_gb_s = roof_read_gb_s(&block, 2);
    roof_block_close(&block);
    roof_measure_peaks(roof, 1);
    return 0;
}

int roof_measure(struct roof *roof, size_t bytes, int repeats, struct err *err)
{
    struct roof_block block;
    *roof = (struct roof){0};
    bytes = round_up(size_max(bytes, PIECE), PIECE);
    if (!measure_copying(roof, bytes, repeats))
        return err_no_memory(err, "two blocks of %zu bytes to measure with", bytes);
    if (roof_block_open(&block, bytes, err) < 0)
        return -1;
    roof->read_gb_s = roof_read_gb_s(&block, repeats + 1);
    roof_block_close(&block);
    roof_measure_peaks(roof, repeats);
    return 0;
}
