/* Names in options that only the library knows. */
#include "names.h"

#include "attn/attn.h"
#include "base/err.h"
#include "kernel/gemm.h"
#include "kv/kv.h"

void names_check(const struct program *program, const char *kv, const char *attn, const char *isa,
                 const char *precision)
{
    struct kv_spec spec;
    enum precision parsed;
    struct err err;
    if ((kv && kv_spec_parse(&spec, kv, &err) < 0) || !attn_find(attn, &err) ||
        (isa && !kernels_select(isa, &err)) ||
        precision_parse(&parsed, precision, *kernel_sets, false, &err) < 0)
        opt_usage_error(program, "%s", err.text);
}
