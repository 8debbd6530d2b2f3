/* Result rows of bmc-prof: accepted ones can be compared with themselves and others. */
#include <stdlib.h>

#include "prof/compare.h"
#include "prof/samples.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compare(const struct measured_row *a, const struct measured_row *b)
{
    double round[2][COMPARE_ROUNDS];
    const char *figure;
    json_t *rounds;
    json_object_foreach((json_t *)(uintptr_t)a->samples, figure, rounds)
    {
        bool less;
        const size_t n_a = measured_rounds(a, figure, round[0]),
                     n_b = measured_rounds(b, figure, round[1]);
        if (!figure_direction(figure, &less) || !n_a)
            abort();
        if (!n_b)
            continue;
        const struct change change = change_of(round[0], n_a, round[1], n_b);
        if (change.there && !(change.value > 0 && change.value < 1e30))
            abort();
        if (change.there && change.bounded &&
            !(change.lo > 0 && change.lo <= change.hi && change.hi < 1e30))
            abort();
        const enum verdict verdict = change_verdict(&change, less, 0.05);
        if (a == b && (verdict == VERDICT_WORSE || verdict == VERDICT_BETTER))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct measured m;
    struct err err;
    if (measured_parse(&m, (const char *)data, size, "fuzz", &err) < 0)
        return 0;
    for (size_t i = 0; i < m.n && i < 16; i++) {
        const struct measured_row *found;
        if (measured_find(&m, &m.row[i], &found, &err) < 0 || found != &m.row[i])
            abort();
        compare(&m.row[i], &m.row[i]);
        compare(&m.row[i], &m.row[0]);
    }
    measured_release(&m);
    return 0;
}
