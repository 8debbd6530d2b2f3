/* The functions that widen KV entries. */
#include "kernel/widen_kv.h"

extern widen_function widen_ref, widen_avx2, widen_neon;

widen_function *widen_function_of(const struct kernels *kernels)
{
    if (strcmp(kernels->isa, "ref") == 0)
        return widen_ref;
#ifdef __x86_64__
    return __builtin_cpu_supports("avx2") ? widen_avx2 : widen_ref;
#elif defined __aarch64__
    return widen_neon;
#else
    return widen_ref;
#endif
}
