/* Regular expressions of constrained output. */
#include "support/constrain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    constrain_try(CONSTRAINT_REGEX, data, size);
    return 0;
}
