/* Pages of a model's weights. */
#ifndef BMC_MODEL_PAGES_H
#define BMC_MODEL_PAGES_H

#include "model/model.h"

/* Replaces the mapped file by a copy in transparent huge pages, which `threads` threads make. */
int model_use_huge_pages(const struct model *model, int threads, struct err *err);

#endif
