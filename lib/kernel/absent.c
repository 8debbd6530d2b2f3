/* Kernel sets that a build has left out (make KERNELS=native), as sets that no processor can use. The linker prefers those of
 * the library, which it has read before. */
#include "kernel/kernel.h"

static bool never(void) { return false; }

#define ABSENT(set)                                                                                    \
    extern const struct kernels kernels_##set;                                                         \
    const struct kernels __attribute__((weak)) kernels_##set = {.isa = "", .usable = never};

ABSENT(ref)
ABSENT(avx2)
ABSENT(avxvnni)
ABSENT(avx512)
ABSENT(vnni)
ABSENT(lookup_vnni)
ABSENT(vbmi)
ABSENT(bf16)
ABSENT(amx)
