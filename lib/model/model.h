/* An open model: configuration, tokenizer and weights, used in place in the mapped file. */
#pragma once

#include "ranks/ranks.h"
#include "format/bmc/bmcfile.h"
#include "model/config.h"
#include "model/lora/lora.h"
#include "model/weights.h"
#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"

struct tensor_types;
struct expert_store;

struct model {
    char *path; /* of the file */
    char *name; /* what messages call it: the path, or that of what the file was converted from */
    struct bmc_file file;
    struct config config;
    struct tokenizer *tok;
    struct weights weights;
    /* scaled gains of QK norms (key_scales.h), so that KV entries have scaled keys; NULL: none */
    float *key_gains;
    struct ranks *ranks; /* ranks that the model is split over; NULL: not split */
    /* pipeline parallelism: this rank has layers [first_layer, first_layer + n_layers) */
    bool pipeline_parallel;
    bool expert_parallel; /* tensor parallel, but each rank has whole experts */
    size_t first_layer, n_layers;
    /* pipeline parallelism: the layers of the rank with the most KV entries, and the most with recurrent state */
    struct layer_range {
        size_t first, n;
    } largest_rank;
    size_t largest_state;
    void *synthetic; /* weights of model_synthesize(); NULL: a mapped file */
    size_t synthetic_bytes;
    struct expert_store *store; /* experts that are read from the file; NULL: they are mapped */
    struct loras *loras;        /* adapters, lora_open.h; NULL: none */
};

enum { MODEL_TYPES_SIZE = 64 };

/* Opens a model.bmc: maps the file and checks its header; weights are not read. Draft heads are
 * refused. */
int model_open(struct model **model, const char *path, struct err *err) MUST_USE;

/* model_open() of a file that was converted from another one, or from a folder: `name`, the path that the user knows. */
int model_open_as(struct model **model, const char *path, const char *name, struct err *err) MUST_USE;

/* model_open_as() that accepts draft heads, too (config_is_draft_head()): these have no tokenizer. */
int model_open_any(struct model **model, const char *path, const char *name, struct err *err) MUST_USE;

/* Opens the draft head in a model's file, which must stay open; an error if there is none. */
int model_open_draft(struct model **draft, const struct model *model, struct err *err) MUST_USE;
void model_close(struct model *model);

/* Fails for models without an LM head, which give embeddings only. */
int model_need_head(const struct model *model, struct err *err) MUST_USE;

/* A model of the given configuration in memory, with the random weights of bmc-convert --synth
 * and without a tokenizer. `name` is used in reports. */
int model_synthesize(struct model **model, const struct config *config, const char *name,
                     enum dtype type, uint64_t seed, struct err *err) MUST_USE;

/* The same with weights of several types. `fast`: rows repeat within large matrices, for measurements of time. */
int model_synthesize_types(struct model **model, const struct config *config, const char *name,
                           const struct tensor_types *types, bool fast, uint64_t seed,
                           struct err *err) MUST_USE;

/* Locks the file's pages in memory (mlock). */
int model_lock(const struct model *model, struct err *err) MUST_USE;

/* Opens what a model file says about chats: format, Jinja templates and special tokens, each of which
 * may be missing. */
int model_chat(const struct model *model, struct chat *chat, struct err *err) MUST_USE;

/* Identifies the model's KV entries, computed with these factors of its adapters: loras_entries_id(). */
struct hash model_entries_id(const struct model *model, const float *lora_factor);

bool model_is_eos(const struct model *model, uint32_t id);

/* The dtype with the most bytes among the matrices of a forward pass. */
enum dtype model_weight_type(const struct model *model);

/* All dtypes of these matrices, by bytes in descending order: "q4_k+q6_k". */
void model_weight_types(const struct model *model, char text[MODEL_TYPES_SIZE]);

/* The class of its matrices, for the default precision. */
enum weights_class model_weights_class(const struct model *model);

/* Number of parameters; tied tensors count once. */
size_t model_parameters(const struct model *model);

/* Bytes of weights without padding. */
struct weight_bytes {
    size_t all;     /* tied tensors count once */
    size_t experts; /* of `all`, those of experts */
};

struct weight_bytes model_weight_bytes(const struct model *model);

/* Of n experts those that this rank has, on average, if they are distributed. */
size_t model_own_experts(const struct model *model, size_t n);

/* Number of layers with experts. */
size_t model_expert_layers(const struct model *model);
