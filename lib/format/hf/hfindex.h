/* model.safetensors.index.json: which file of sharded weights has a tensor. */
#ifndef BMC_HFINDEX_H
#define BMC_HFINDEX_H

#include "base/json.h"

/* Parses an index called `name`. *files is a JSON object: for each tensor the name of its file, without
 * folders; the caller must json_decref() it. */
int hf_index_parse(json_t **files, const char *text, size_t size, const char *name,
                   struct err *err) MUST_USE;

#endif
