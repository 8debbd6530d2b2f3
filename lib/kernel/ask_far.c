/* How memory is best asked: a property of the processor, which all sets read. */
#include "kernel/ask_far.h"

bool ask_far;

void ask_far_setup(void)
{
#ifdef __x86_64__
    ask_far = __builtin_cpu_is("amd");
#endif
}
