/* Acceptance files, hostile: the shares that are taken are shares, and trees can be made for them. */
#include <math.h>
#include <stdlib.h>

#include "decode/acceptance.h"

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
