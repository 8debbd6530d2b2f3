/* Lists of choices, as JSON of constrained output. */
#include "support/constrain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    constrain_try(CONSTRAINT_CHOICE, data, size);
    return 0;
}
