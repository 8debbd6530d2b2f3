/* Names in options that only the library knows: of policies, backends, instruction sets, precisions. */
#ifndef BMC_NAMES_H
#define BMC_NAMES_H

#include "opt.h"

/* A wrong one is wrong usage, as if the option table had known. NULL: not given. */
void names_check(const struct program *program, const char *kv, const char *attn, const char *isa,
                 const char *precision);

#endif
