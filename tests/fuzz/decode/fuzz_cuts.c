/* Steps, truncations, forks and reorderings under any cache policy: logits equal those of a
 * fresh computation. */
#include "tests/fuzz/support/cuts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cuts cuts;
    if (size > CUTS_HEADER && !cuts_run(&cuts, data, size)) {
        fprintf(stderr, "%s: %s\n", cuts.how, cuts.problem);
        abort();
    }
    return 0;
}
