/* The table of kernel sets, and the choice among them. */
#include <cblas.h>
#include <stdio.h>
#include <string.h>

#include "kernel/kernel.h"

const struct kernels *const kernel_sets[] = {&kernels_ref, NULL};

const struct kernels *kernels_select(const char *isa, struct err *err)
{
    const struct kernels *best = NULL;
    char usable[128] = "";
    for (size_t i = 0; kernel_sets[i]; i++) {
        if (!kernel_sets[i]->usable())
            continue;
        if (!isa || !*isa || strcmp(isa, kernel_sets[i]->isa) == 0)
            best = kernel_sets[i];
        const size_t used = strlen(usable);
        snprintf(usable + used, sizeof usable - used, "%s%s", used ? ", " : "", kernel_sets[i]->isa);
    }
    if (!best)
        err_set(err, "no instruction set \"%s\" in this build on this CPU; there are: %s", isa, usable);
    return best;
}

int kernels_setup(struct err *err)
{
    if (openblas_get_parallel() != OPENBLAS_OPENMP)
        return err_set(
            err,
            "the OpenBLAS in use (%s) is not the OpenMP build, its threads would fight ours; install "
            "libopenblas0-openmp and unset LD_LIBRARY_PATH",
            openblas_get_config());
    return 0;
}

const char *kernels_blas_info(void) { return openblas_get_config(); }
