/* The loops that measure peak rates of int8 and tile products: they multiply, and count correctly. */
#include "tests/unit/check.h"
#include "kernel/peak.h"

enum { ROUNDS = 16 };

/* Expected sums of products after ROUNDS rounds. VNNI and ARM's dot products: 3 by 3, four per lane
 * (i8mm: eight), in sums that begin at 0, 1, ..; other vectors of int8: 3 by codes 0 to 14, rotated
 * between rounds; AMX: zeros; ARM's bf16: 1 by 1, in sums that begin at 1; reference: 3 by 5. */
static const struct {
    const struct peak *peak;
    double work, sum;
    enum peak_kind kind;
} cases[] = {
#ifdef __x86_64__
    {&peak_vnni, ROUNDS * 16 * 64, 120 + 16 * ROUNDS * 36, PEAK_INT8},
    {&peak_avxvnni, ROUNDS * 12 * 32, 66 + 12 * ROUNDS * 36, PEAK_INT8},
    {&peak_avx512_int8, ROUNDS * 8 * 64, 28 + 12 * (8 * 2 * 28 + ROUNDS * 28), PEAK_INT8},
    {&peak_avx2_int8, ROUNDS * 8 * 32, 28 + 12 * (8 * 2 * 28 + ROUNDS * 28), PEAK_INT8},
    {&peak_amx, ROUNDS / 16 * 6 * 16 * 16 * 64, 0, PEAK_INT8},
    {&peak_amx_bf16, ROUNDS / 16 * 6 * 16 * 16 * 32, 0, PEAK_BF16},
#elif defined __aarch64__
    {&peak_neon_int8, ROUNDS * 8 * 16, 28 + 12 * (8 * 2 * 28 + ROUNDS * 28), PEAK_INT8},
    {&peak_dotprod, ROUNDS * 16 * 16, 120 + 16 * ROUNDS * 36, PEAK_INT8},
    {&peak_i8mm, ROUNDS * 16 * 32, 120 + 16 * ROUNDS * 72, PEAK_INT8},
    {&peak_bf16, ROUNDS * 16 * 16, 16 + 16 * ROUNDS * 4, PEAK_BF16},
#endif
    {&peak_ref_int8, 1024, 1024 * 15, PEAK_INT8},
};

int main(void)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct peak *peak = cases[i].peak;
        float sum = 0;
        check(peak->kind == cases[i].kind, "%s: kind %d", peak->isa, (int)peak->kind);
        if (!peak->usable())
            continue;
        const double work = peak->run(ROUNDS, &sum);
        check(work == cases[i].work, "%s: %g products counted", peak->isa, work);
        check((double)sum == cases[i].sum, "%s: a sum of %g, %g wanted", peak->isa, (double)sum,
              cases[i].sum);
    }
    return check_result();
}
