/* model.safetensors.index.json: which files of a folder hold the weights. */
#ifndef BMC_HFINDEX_H
#define BMC_HFINDEX_H

#include "base/json.h"

/* Reads an index of that name: *files receives an object whose members are the names of the files, each once, all of them
 * in the folder itself. The caller json_decref()s it. */
int hf_index_parse(json_t **files, const char *text, size_t size, const char *name,
                   struct err *err) MUST_USE;

#endif
