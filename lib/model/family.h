/* A model family as data: models.d/families/NAME.family, described in bmc-family(5). It says how a
 * config.json becomes our configuration, and what the tensors are called in safetensors files. */
#ifndef BMC_FAMILY_H
#define BMC_FAMILY_H

#include "base/conf.h"
#include "base/json.h"
#include "model/config.h"

struct family {
    struct conf conf;
};

int family_open(struct family *family, const char *path, struct err *err) MUST_USE;

/* The family in `models_dir`/families that lists `architecture`; the error names those that exist. */
int family_find(struct family *family, const char *models_dir, const char *architecture,
                struct err *err) MUST_USE;
void family_release(struct family *family);

/* Applies the family's lines to a config.json. `name` names it in errors; `eos` ids are not set. */
int family_configure(const struct family *family, const json_t *json, const char *name,
                     struct config *config, struct err *err) MUST_USE;

/* Applies the family's defaults, then the lines of a shape file. */
int family_configure_shape(const struct family *family, const struct conf *shape, struct config *config,
                           struct err *err) MUST_USE;

/* The source names of a role, alternatives in order; `name` holds at least 256 bytes. False when there
 * is no `nth` one. */
bool family_tensor_name(const struct family *family, const char *role, size_t layer, size_t nth,
                        char *name, size_t size);

/* Opens MODELS_DIR/shapes/NAME.shape (or a path, when `shape` has a slash) with its family. */
int shape_configure(const char *models_dir, const char *shape, struct config *config,
                    struct err *err) MUST_USE;

#endif
