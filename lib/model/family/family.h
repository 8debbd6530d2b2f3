/* A model family as data: models.d/families/NAME.family, described in bmc-family(5). It maps
 * config.json to struct config, and weight kinds to names and layouts of the source's tensors. */
#pragma once

#include "base/conf.h"
#include "base/json.h"
#include "format/source.h"
#include "model/config.h"
#include "model/convert/tensor_transform.h"

enum { TENSOR_NAME_SIZE = 256 };

/* A line of a family file, or a line inherited from another. */
struct family_line {
    const char *file; /* path for errors */
    const struct conf_entry *entry;
};

struct tensor_line {
    const struct weight_kind *kind;
    char pattern
        [TENSOR_NAME_SIZE]; /* the first % stands for the layer's number, the second for the expert's */
    struct tensor_transform transform;
};

enum { FAMILY_BASES = 4 /* most levels of inheritance */, FAMILY_MODEL_SIZE = 128 };

struct family {
    struct conf conf;               /* the family file */
    struct conf base[FAMILY_BASES]; /* those it inherits from, nearest first */
    size_t n_bases;
    struct family_line *line; /* lines in effect, inherited ones first */
    size_t first_layer;       /* number of layer 0 in tensor names; 0 but for most MTP layers */
    size_t n_lines, cap_lines;
    struct tensor_line *tensor;
    size_t n_tensors, cap_tensors;
    char model
        [FAMILY_MODEL_SIZE]; /* family_find(): the architecture with an LM head, if the model's is without */
};

/* Opens a family file; the family named by `like` is searched in `models_dir`/families. */
int family_open(struct family *family, const char *models_dir, const char *path,
                struct err *err) MUST_USE;

/* family_open() for a file in memory; `name` is used in errors. */
int family_parse(struct family *family, const char *models_dir, const char *text, size_t size,
                 const char *name, struct err *err) MUST_USE;

/* Finds the family in `models_dir`/families that lists `architecture`, first among those that also ask
 * for tensors of the source; the error lists all families. An architecture "NAMEModel" or "NAMETextModel",
 * without LM head, has the family of "NAMEForCausalLM" or "NAMELMHeadModel", which family->model then is. */
int family_find(struct family *family, const char *models_dir, const char *architecture,
                const struct weight_source *source, struct err *err) MUST_USE;
void family_release(struct family *family);

/* Opens the family of the layers for multi-token prediction that a source of `target`'s family has
 * beside its `layers` layers, by the `mtp` line. It inherits all lines of the target's family,
 * which must outlive it. Sets *n to the number of MTP layers by that line; 0: none, and nothing
 * is opened. */
int family_open_mtp(struct family *family, const struct family *target, const char *models_dir,
                    const struct weight_source *source, size_t layers, size_t *n,
                    struct err *err) MUST_USE;

/* The configuration of the language model in config.json: of multimodal models, the object that the
 * line `text_config` names, completed with other members of config.json; else config.json itself; with the
 * line `alias` applied. A new reference; NULL on error. */
json_t *family_text_config(const struct family *family, const json_t *json, struct err *err) MUST_USE;

/* Fills `config` by applying the family's lines to family_text_config() of `source`. Does not set EOS
 * ids. config_close() frees the result. */
int family_configure(const struct family *family, const json_t *json,
                     const struct weight_source *source, struct config *config,
                     struct err *err) MUST_USE;

/* Fills `config` from the family's defaults, then from the lines of a shape file. config_close() frees the result. */
int family_configure_shape(const struct family *family, const struct conf *shape, struct config *config,
                           struct err *err) MUST_USE;

/* Replaces the family's `tensor` lines by the source's own tensor names, if it has them (GGUF). */
int family_take_names(struct family *family, const struct weight_source *source,
                      struct err *err) MUST_USE;

/* The place of weights in a model; both are ignored for kinds that have one tensor. */
struct tensor_place {
    size_t layer;
    size_t expert; /* or head, or 0 to 2 for a convolution's weights of queries, keys and values */
};

/* Returns the transform, and in `name` the name, of the nth source tensor that may have the weights
 * of this kind and place; NULL: there are no more names. */
const struct tensor_transform *family_tensor(const struct family *family,
                                             const struct weight_kind *kind, struct tensor_place place,
                                             size_t nth, char name[TENSOR_NAME_SIZE]);

/* Sets `path` to that of a shape: MODELS_DIR/shapes/NAME.shape, or `shape` itself if it contains a
 * slash or ends in ".shape" or ".json". */
void shape_path(const char *models_dir, const char *shape, char *path, size_t size);

/* Fills `config` from a shape file, given by name or path, and its family, or from a config.json. config_close() frees the result. */
int shape_configure(const char *models_dir, const char *shape, struct config *config,
                    struct err *err) MUST_USE;

/* shape_configure() for a model to be run alone: draft heads are refused. */
int shape_configure_model(const char *models_dir, const char *shape, struct config *config,
                          struct err *err) MUST_USE;
