/* Regular expressions of constrained output; the same text as a JSON list of choices. */
#include "tests/fuzz/support/constrain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    constrain_try(CONSTRAINT_REGEX, data, size);
    constrain_try(CONSTRAINT_CHOICE, data, size);
    return 0;
}
