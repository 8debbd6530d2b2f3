/* Acceptance files: accepted ones have valid probabilities, and trees can be built from them. */
#include <math.h>
#include <stdlib.h>

#include "decode/spec/acceptance.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct acceptance a;
    struct err err;
    double sum = 0;
    if (acceptance_parse(&a, (const char *)data, size, "fuzz", &err) < 0)
        return 0;
    if (a.ranks < 1 || a.ranks > TREE_RANKS)
        abort();
    for (size_t i = 0; i < a.ranks; i++) {
        if (!(a.share[i] >= 0))
            abort();
        sum += a.share[i];
    }
    if (!isfinite(sum) || sum > 1.001)
        abort();
    return 0;
}
