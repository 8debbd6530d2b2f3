/* bmc-convert --target-bytes, --target-bpw and --target-kld: types by measured divergence. */
#ifndef BMC_TARGET_H
#define BMC_TARGET_H

#include "model/convert/convert.h"
#include "prof/type_search.h"

struct target {
    enum type_goal goal;
    double value;
    const char *text; /* path */
    int threads;
    bool quiet;
};

/* Chooses the types for `out`, a .bmc or GGUF file, of a source that `plain` converts with its own types. The caller
 * releases *chosen, also after an error. */
int convert_choose_types(struct chosen_types *chosen, const struct target *target, const char *source,
                         const char *out, const struct convert_options *plain,
                         struct err *err) MUST_USE;

#endif
