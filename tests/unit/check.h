/* Helpers of the C tests. check() prints one line for each failed check; main() returns
 * check_result(). */
#ifndef BMC_CHECK_H
#define BMC_CHECK_H

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int checks_made, checks_failed;

__attribute__((format(printf, 2, 3))) static inline bool check(bool ok, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    checks_made++;
    checks_failed += !ok;
    if (!ok) {
        printf("not ok %d - ", checks_made);
        vprintf(format, args);
        printf("\n");
    }
    va_end(args);
    return ok;
}

static inline bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance; /* false for NaN */
}

/* The seed for a test's random numbers: BMC_SEED, else `seed`. It is printed, so that a failure can
 * be reproduced. */
static inline uint64_t check_seed(uint64_t seed)
{
    const char *text = getenv("BMC_SEED");
    if (text && *text)
        seed = strtoull(text, NULL, 10);
    printf("# seed %llu\n", (unsigned long long)seed);
    return seed;
}

/* Initial state of a xorshift generator (Marsaglia, 2003), which must not be 0. */
static inline uint64_t check_state(uint64_t seed) { return (seed + 1) * 0x9e3779b97f4a7c15u | 1; }

/* Its next number. */
static inline uint64_t check_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

/* The size of a test: `few` under an emulator (make check-arm) or ThreadSanitizer, where floating-point code takes
 * 20 to 160 times as long. */
static inline size_t check_size(size_t all, size_t few)
{
#ifdef __SANITIZE_THREAD__
    return (void)all, few;
#else
    return getenv("BMC_EMULATED") ? few : all;
#endif
}

/* The stride of a sample of a product of cases: 1, all of them, with BMC_FULL=1. */
static inline size_t check_every(size_t n)
{
    const char *text = getenv("BMC_FULL");
    return text && *text ? 1 : n;
}

/* qemu-user refuses mremap() with a length of 0, by which a model is copied to huge pages. */
static inline bool can_copy_model(void) { return getenv("BMC_EMULATED") == NULL; }

/* Prints the counts and returns the exit code; a run without any check fails, too. */
static inline int check_result(void)
{
    printf("%d checks, %d failed\n", checks_made, checks_failed);
    return checks_failed > 0 || checks_made == 0;
}

#endif
