/* Options --hugepages and --numa. */
#ifndef BMC_PAGES_H
#define BMC_PAGES_H

#include "model/model.h"

struct pages_options {
    bool hugepages, numa;
    int threads; /* of the team that will use the model */
};

/* Copies a mapped model as the options say, or leaves it as it is. On a machine with one NUMA node a note on standard
 * error says that --numa changes nothing. */
int pages_use(const char *program, const struct model *model, const struct pages_options *options,
              struct err *err) MUST_USE;

#endif
