/* Unpacking of KV entries in portable C, and the functions of all kernel sets. */
#include "kernel/ref/ref_begin.h"
#include "kernel/template/unpack_entries.h"

UNPACK_FUNCTION(unpack_ref)

extern unpack_function unpack_avx2, unpack_neon;

unpack_function *unpack_function_of(const struct kernels *kernels)
{
    if (strcmp(kernels->isa, "ref") == 0)
        return unpack_ref;
#ifdef __x86_64__
    return __builtin_cpu_supports("avx2") ? unpack_avx2 : unpack_ref;
#elif defined __aarch64__
    return unpack_neon;
#else
    return unpack_ref;
#endif
}
