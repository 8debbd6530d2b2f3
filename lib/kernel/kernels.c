/* The table of kernel sets, and selection by name. */
#include <pthread.h>
#include <strings.h>

#include "kernel/cpu_traits.h"
#include "kernel/kernel.h"
#include "kernel/rates.h"
#include "kernel/unpack_kv.h"

extern const struct kernels kernels_ref, kernels_ref_fma, kernels_blas;
extern const struct kernels kernels_avx2, kernels_avxvnni, kernels_avx512, kernels_vnni, kernels_bf16,
    kernels_amx;
extern const struct kernels kernels_neon, kernels_dotprod, kernels_i8mm;

static const struct kernels *const built[] = {
    &kernels_blas, &kernels_ref,
#ifdef __x86_64__
    &kernels_avx2, &kernels_avxvnni, &kernels_avx512, &kernels_vnni, &kernels_bf16, &kernels_amx,
#elif defined __aarch64__
    &kernels_neon, &kernels_dotprod, &kernels_i8mm, &kernels_bf16,
#endif
};

static struct kernels complete[ARRAY_LEN(built)];
static const struct kernels *pointers[ARRAY_LEN(built) + 1];

const struct kernels *const *const kernel_sets = pointers;

/* Slots: `peak` and all members behind it are pointers. */
enum { SLOTS_AT = offsetof(struct kernels, peak), SLOT_BYTES = sizeof(void (*)(void)) };

/* That of ref is compiled with the FMA instruction where the processor has it. */
static const struct kernels *fastest_build(const struct kernels *k)
{
#ifdef __x86_64__
    if (k == &kernels_ref && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &kernels_ref_fma;
#endif
    return k;
}

/* Fills the empty slots of a kernel set from its base set, that set's base, and so on. */
static void complete_set(struct kernels *k, const struct kernels *base)
{
    static const char empty[SLOT_BYTES];
    for (; base; base = base->base) {
        const char *from = (const char *)fastest_build(base);
        for (size_t at = SLOTS_AT; at < sizeof *k; at += SLOT_BYTES)
            if (memcmp((char *)k + at, empty, SLOT_BYTES) == 0)
                memcpy((char *)k + at, from + at, SLOT_BYTES);
    }
}

static void setup(void)
{
    for (size_t i = 0; i < ARRAY_LEN(built); i++) {
        complete[i] = *fastest_build(built[i]);
        complete_set(&complete[i], built[i]->base);
        pointers[i] = &complete[i];
    }
    kv_unpack_fill();
#ifdef __x86_64__
    prefetch_l2 = __builtin_cpu_is("amd");
    vbmi_unpacks = __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni");
#endif
}

static const struct kernels *by_default;

static void find_default(void)
{
    struct kernel_rates rates[RATES_MOST];
    by_default = rates_fastest(rates, rates_measure(rates, kernel_sets, RATES_BRIEF));
}

const struct kernels *kernels_select(const char *isa, struct err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const struct kernels *best = NULL;
    char usable[128] = "";
    bool known = false;
    if (!isa || !*isa) {
        pthread_once(&once, find_default);
        return by_default;
    }
    for (size_t i = 0; kernel_sets[i]; i++) {
        const bool named = strcasecmp(isa, kernel_sets[i]->isa) == 0;
        known |= named;
        if (!kernel_sets[i]->usable())
            continue;
        if (named)
            best = kernel_sets[i];
        const size_t used = strlen(usable);
        snprintf(usable + used, sizeof usable - used, "%s%s", used ? ", " : "", kernel_sets[i]->isa);
    }
    if (!best)
        err_set(err,
                known ? "this CPU does not support the instruction set \"%s\"; there are: %s"
                      : "no instruction set \"%s\" in this build on this CPU; there are: %s",
                isa, usable);
    return best;
}

int kernels_load(const struct kernels *kernels, struct err *err)
{
    return kernels->load ? kernels->load(err) : 0;
}

void kernels_setup(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, setup);
}
