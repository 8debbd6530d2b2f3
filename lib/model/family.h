/* A model family as data: models.d/families/NAME.family, described in bmc-family(5). It says how what a source says about
 * its model (config.json) becomes our configuration, and what the tensors are called and how they lie there. */
#ifndef BMC_FAMILY_H
#define BMC_FAMILY_H

#include "base/conf.h"
#include "base/json.h"
#include "format/source.h"
#include "model/config.h"
#include "model/recipe.h"

enum { TENSOR_NAME_SIZE = 256 };

/* A line of the file, or of the one that it is like. */
struct family_line {
    const char *file; /* for errors */
    const struct conf_entry *entry;
};

struct tensor_line {
    const struct role *role;
    char pattern[TENSOR_NAME_SIZE]; /* % stands for the layer */
    struct recipe recipe;
};

struct family {
    struct conf conf, base;   /* its own text, and that of the family that it is like */
    struct family_line *line; /* those in force */
    size_t n_lines, cap_lines;
    struct tensor_line *tensor;
    size_t n_tensors, cap_tensors;
};

/* The family that it is like is looked for in `models_dir`/families. */
int family_open(struct family *family, const char *models_dir, const char *path,
                struct err *err) MUST_USE;

/* The same of a text called `name`. */
int family_parse(struct family *family, const char *models_dir, const char *text, size_t size,
                 const char *name, struct err *err) MUST_USE;

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

/* Where the source calls tensors by names of its own, these replace the family's `tensor` lines. */
int family_take_names(struct family *family, const struct weight_source *source,
                      struct err *err) MUST_USE;

/* What a role is made of, alternatives in order: the name of a tensor of the source, and what is done to it. NULL when
 * there is no `nth` one. */
const struct recipe *family_tensor(const struct family *family, const struct role *role, size_t layer,
                                   size_t nth, char name[TENSOR_NAME_SIZE]);

/* The file of a shape: MODELS_DIR/shapes/NAME.shape, or `shape` itself, when it has a slash or ends in ".shape". */
void shape_path(const char *models_dir, const char *shape, char *path, size_t size);

/* Opens it with its family. */
int shape_configure(const char *models_dir, const char *shape, struct config *config,
                    struct err *err) MUST_USE;

#endif
