/* A folder of models that were converted when their source, a GGUF file or Hugging Face folder, was first opened as a
 * model. Many processes share it: models appear complete under their final names, the least recently used ones are
 * removed when the folder exceeds its size, and locks end with the process that has them. */
#pragma once

#include "model/convert/convert.h"

#define MODEL_CACHE_BYTES ((size_t)64 << 30) /* the default of max_bytes */

struct model_cache {
    const char *folder; /* is created if it is missing; NULL: there is none, for the reason `why` */
    const char *why;
    size_t max_bytes; /* of all models in it */
    /* models_dir, reports and progress; other members are set for each conversion */
    struct convert_options convert;
    void (*waits)(void *arg, const char *source); /* another process converts the source; may be NULL */
    void *arg;
};

/* A model that a process uses. */
struct cached_model {
    char path[4096 + 512]; /* of the .bmc file */
    int lock; /* while it is open the file is not removed; -1: it is not the cache's, or without locks */
    size_t converted; /* bytes of the file, if it was made now; else 0 */
};

/* True for a path that a model cache converts: a GGUF file or a folder. */
bool model_cache_converts(const char *path);

/* Finds the model of a source, which is converted if it has changed (source_identify()) or was not opened before, by
 * this version of the conversion. Anything but a GGUF file or folder is its own model. Each source is converted by one
 * process at a time, for which others wait. A conversion that fails, or whose process is killed, leaves no model. The
 * caller closes it. */
int model_cache_open(const struct model_cache *cache, const char *source, struct cached_model *model,
                     struct err *err) MUST_USE;
void cached_model_close(struct cached_model *model);

/* A model in the folder. */
struct model_cache_entry {
    char name[256];
    uint64_t key;
    size_t bytes;
    struct timespec used; /* last */
    bool in_use;          /* by a process, perhaps this one */
    bool own;             /* a regular file that only this user can write; others are not used */
};

/* Lists the models, the least recently used first; the caller frees *entry. A folder that does not exist has none. */
int model_cache_list(const char *folder, struct model_cache_entry **entry, size_t *n,
                     struct err *err) MUST_USE;

/* Removes all models that no process uses, and what killed processes have left. */
int model_cache_clear(const char *folder, size_t *removed, size_t *bytes, size_t *left,
                      struct err *err) MUST_USE;
