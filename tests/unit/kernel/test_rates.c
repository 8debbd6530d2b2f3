/* The choice of the default kernel set, for given instruction rates; and that measured rates always
 * give the same choice. */
#include "base/clock.h"
#include "tests/unit/check.h"
#include "kernel/rates.h"

#ifdef __x86_64__

static const struct kernels *set_of(const char *isa)
{
    for (size_t i = 0; kernel_sets[i]; i++)
        if (strcmp(kernel_sets[i]->isa, isa) == 0)
            return kernel_sets[i];
    return NULL;
}

enum {
    F32_256,
    F32_512,
    DOT_512,
    DOT_TILES,
    BYTES_256,
    BYTES_256_VNNI,
    BYTES_512,
    BYTES_512_VNNI,
    LOOPS
};

/* Throughputs of the loops on a processor, 0 if it lacks the instruction, and the set that it
 * should get. Unless measured, they are multiply-adds per cycle and core, from manuals and
 * uops.info. */
static const struct {
    const char *cpu, *want;
    double rate[LOOPS];
} machines[] = {
    /* Measured GFLOP/s of a Xeon with VDPBF16PS at half of f32 FMA: bf16x2 would run at a
     * quarter. */
    {"Xeon with slow bf16", "vnni", {190, 380, 179, 0, 400, 0, 500, 1500}},
    /* The same with AMX: 1024 bf16 multiply-adds per cycle. */
    {"Xeon with AMX", "amx", {190, 380, 179, 5000, 400, 0, 500, 1500}},
    /* One dot product per cycle but two FMAs: bf16x2 runs at half the rate of f32. */
    {"dot product as fast as FMA", "vnni", {16, 32, 32, 0, 32, 0, 43, 128}},
    /* Zen 4: per cycle 16 FMA, 32 bf16 products, 64 byte products. A tie for bf16 weights selects
     * the newer set. */
    {"Zen 4", "bf16", {16, 16, 32, 0, 32, 0, 43, 64}},
    {"Zen 5", "bf16", {16, 32, 64, 0, 64, 64, 85, 128}},
    /* AVX-512 no faster than AVX2: a tie. */
    {"one 512-bit unit", "vnni", {16, 16, 0, 0, 32, 0, 32, 64}},
    {"Skylake-X", "avx512", {16, 32, 0, 0, 32, 0, 43, 0}},
    /* AVX-512 instructions in two slow passes. */
    {"512 bits at half the rate", "avxvnni", {16, 8, 0, 0, 32, 64, 21, 0}},
    {"Alder Lake", "avxvnni", {16, 0, 0, 0, 32, 64, 0, 0}},
    {"Haswell", "avx2", {16, 0, 0, 0, 32, 0, 0, 0}},
    {"tiles no faster than FMA", "vnni", {16, 32, 16, 32, 32, 0, 43, 128}},
};

static const struct {
    const char *isa;
    int f32, bf16, int8; /* loops; -1: none */
} sets[] = {{"blas", -1, -1, -1},
            {"ref", -1, -1, -1},
            {"avx2", F32_256, -1, BYTES_256},
            {"avxvnni", F32_256, -1, BYTES_256_VNNI},
            {"avx512", F32_512, -1, BYTES_512},
            {"vnni", F32_512, -1, BYTES_512_VNNI},
            {"bf16", F32_512, DOT_512, BYTES_512_VNNI},
            {"amx", F32_512, DOT_TILES, BYTES_512_VNNI}};

/* True if the processor has a loop that a set needs (-1: none needed). */
static bool there(const double *rate, int loop) { return loop < 0 || rate[loop] > 0; }
static double value(const double *rate, int loop) { return loop < 0 ? 0 : rate[loop]; }

static const char *choose(const double rate[LOOPS])
{
    struct kernel_rates rates[RATES_MOST];
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(sets); i++)
        if (there(rate, sets[i].f32) && there(rate, sets[i].bf16) && there(rate, sets[i].int8))
            rates[n++] = (struct kernel_rates){
                set_of(sets[i].isa),
                {value(rate, sets[i].f32), value(rate, sets[i].bf16), value(rate, sets[i].int8)}};
    return rates_fastest(rates, n)->isa;
}

static void test_machines(void)
{
    for (size_t i = 0; i < ARRAY_LEN(machines); i++) {
        const char *got = choose(machines[i].rate);
        check(strcmp(got, machines[i].want) == 0, "%s: %s, %s wanted", machines[i].cpu, got,
              machines[i].want);
    }
}

static void expect_still(size_t machine, int loop, double factor)
{
    double rate[LOOPS];
    memcpy(rate, machines[machine].rate, sizeof rate);
    rate[loop] *= factor;
    const char *got = choose(rate);
    check(strcmp(got, machines[machine].want) == 0, "%s, loop %d times %.2f: %s, %s wanted",
          machines[machine].cpu, loop, factor, got, machines[machine].want);
}

/* The choice stays the same if one loop is measured 30 % too fast or too slow. */
static void test_noise(void)
{
    for (size_t i = 0; i < ARRAY_LEN(machines); i++)
        for (int loop = 0; loop < LOOPS; loop++) {
            expect_still(i, loop, 1.3);
            expect_still(i, loop, loop == DOT_512 || loop == DOT_TILES ? 0.7 : 1 / 1.3);
        }
}

/* The table above has every set, and each set has the loops that the table lists. */
static void test_sets(void)
{
    size_t n = 0;
    while (kernel_sets[n])
        n++;
    check(n == ARRAY_LEN(sets), "%zu sets in the table, %zu here", n, ARRAY_LEN(sets));
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        const struct kernels *k = set_of(sets[i].isa);
        check(k && (k->peak[PEAK_F32] != NULL) == (sets[i].f32 >= 0) &&
                  (k->peak[PEAK_BF16] != NULL) == (sets[i].bf16 >= 0) &&
                  (k->peak[PEAK_INT8] != NULL) == (sets[i].int8 >= 0),
              "%s: other loops", sets[i].isa);
        check(!k || (k->panel_bf16 != NULL) == (sets[i].bf16 >= 0), "%s: products of bf16, no loop",
              sets[i].isa);
    }
}

/* Benchmark loops of two sets, of which the newer one is `slowness` times slower, in its first `disturbed` calls by another
 * `disturbance`. */
static double slowness, disturbance;
static int calls, disturbed;

static double spin(double ops_per_ms)
{
    const double start = clock_ms();
    double ms;
    do
        ms = clock_ms() - start;
    while (ms < 0.005);
    return ms * ops_per_ms;
}
static bool always(void) { return true; }
static double run_older(size_t rounds, float *sink)
{
    *sink += (float)rounds;
    return spin(1e6);
}
static double run_newer(size_t rounds, float *sink)
{
    *sink += (float)rounds;
    return spin(1e6 / slowness / (calls++ < disturbed ? disturbance : 1));
}
static const struct peak older_loop = {.run = run_older}, newer_loop = {.run = run_newer};
static const struct kernels older = {
    .isa = "older", .usable = always, .peak = {[PEAK_F32] = &older_loop}};
static const struct kernels newer = {
    .isa = "newer", .usable = always, .peak = {[PEAK_F32] = &newer_loop}};

static void expect_turns(const struct kernels *want, int turns)
{
    struct kernel_rates rates[RATES_MOST];
    calls = 0;
    const size_t n =
        rates_measure(rates, (const struct kernels *const[]){&older, &newer, NULL}, RATES_BRIEF);
    check(rates_fastest(rates, n) == want && calls == turns,
          "%g times slower, %d times disturbed by %g: %s, %d turns; %s, %d wanted", slowness, disturbed,
          disturbance, rates_fastest(rates, n)->isa, calls, want->isa, turns);
}

/* Few turns if the newest set is not slower, a quarter of all if it is so without doubt, else as many as it takes. */
static void test_turns(void)
{
    slowness = 1, disturbed = 0;
    expect_turns(&newer, RATES_BRIEF);
    slowness = 4;
    expect_turns(&older, RATES_BRIEF * RATES_ROUNDS / 4);
    slowness = 2;
    expect_turns(&older, RATES_BRIEF * RATES_ROUNDS);
    slowness = 1, disturbance = 2, disturbed = RATES_BRIEF * (RATES_ROUNDS - 1) + 1;
    expect_turns(&newer, RATES_BRIEF * RATES_ROUNDS);
    disturbance = 10, disturbed = RATES_BRIEF * 2;
    expect_turns(&newer, RATES_BRIEF * 3);
}

/* Rates measured repeatedly on this machine give the same choice, that of the programs, quickly. */
static void test_measured(void)
{
    struct err err;
    const struct kernels *want = kernels_select(NULL, &err);
    double least = 1e9;
    for (int again = 0; again < 20; again++) {
        struct kernel_rates rates[RATES_MOST];
        const double start = clock_ms();
        const size_t n = rates_measure(rates, kernel_sets, RATES_BRIEF);
        const double ms = clock_ms() - start;
        const struct kernels *got = rates_fastest(rates, n);
        check(got == want, "measured again: %s, before %s", got->isa, want->isa);
        least = ms < least ? ms : least;
    }
    if (getenv("BMC_SHOW"))
        printf("%.2f ms\n", least);
}

#endif

int main(void)
{
#ifdef __x86_64__
    kernels_setup();
    test_machines();
    test_noise();
    test_sets();
    test_turns();
    test_measured();
#endif
    return check_result();
}
