/* How generations end. */
#include "decode/gen_types.h"

const char *gen_finish_name(enum gen_finish finish)
{
    static const char *const names[] = {"length", "eos", "stop", "error"};
    return names[finish];
}
