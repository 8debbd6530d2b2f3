/* Options --hugepages and --numa. */
#ifndef BMC_PAGES_H
#define BMC_PAGES_H

#include "model/model_pages.h"

/* model_use_pages(); on a machine with one NUMA node a note on standard error says that --numa changes nothing. */
int pages_use(const char *program, const struct model *model, const struct pages_options *options,
              struct err *err) MUST_USE;

#endif
