/* What sentence-transformers' files beside a model say about embeddings. */
#ifndef BMC_POOLING_H
#define BMC_POOLING_H

#include "base/json.h"

/* Reads modules.json and the configuration of its pooling module in the folder `path`. Sets *json to an
 * object: "pooling" (mean, last, cls, or unsupported), "normalize" (false if there is no such
 * module), "unsupported" (what is not supported, for a message) and "prompts" (names of texts to put
 * before queries and documents); or to NULL if there is none. */
int pooling_read(json_t **json, const char *path, struct err *err) MUST_USE;

#endif
