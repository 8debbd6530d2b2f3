/* Grammars in GBNF of constrained output. */
#include "tests/fuzz/support/constrain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    constrain_try(CONSTRAINT_GRAMMAR, data, size);
    return 0;
}
