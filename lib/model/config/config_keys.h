/* The keys of a configuration's text beside the members of struct config: tables of modules as they are written, and the
 * ways in which families say what differs by layer. Only lib/model/config/ reads them; all others read what they are
 * resolved to, struct layer_plan. */
#pragma once

#include "model/config.h"

enum { MAX_WIDTH = 1 << 20, MAX_VOCAB = 1 << 24 };

/* A value per layer: layer l has value[l % n]. n = 0: the default, which depends on other keys. */
struct layer_list {
    size_t n;
    uint16_t value[MAX_LAYERS];
};

/* Which indexer chooses the positions that a layer attends to: its own, or that of a layer before. */
enum index_type { INDEX_FULL, INDEX_SHARED };

struct config_keys {
    struct rope_plan rope; /* of LAYER_ROPE; dim 0: all dimensions of a head */
    /* base of LAYER_ROPE_LOCAL, without scaling, and rotary dimensions; 0: those of LAYER_ROPE */
    double rope_local_theta;
    size_t rope_local_dim;
    struct temperature_plan temperature;
    struct latent_plan latent;
    struct mlp_plan mlp;
    struct moe_plan moe;
    struct recurrent_plan recurrent;
    struct draft_plan draft;

    /* Kinds of layers, and their rotation */
    size_t window; /* sliding window; 0: none */
    /* every n-th layer has full attention, all others the window; 0: all have the window */
    size_t window_every;
    bool last_full; /* the last layer has full attention, whatever layer_types or window_every say */
    /* layers are attention or a state alone; layers of the kinds mlp and experts have the MLPs */
    bool one_sublayer;
    struct layer_list layer_types; /* enum layer_kind; default: by window and window_every */
    bool bidirectional; /* tokens attend to later ones, too, in layers with a window to those in it */
    bool round_inputs;  /* inputs of the layers' products are rounded to 8 bits per token */
    bool sub_norm;      /* norms precede the output projections of attention and of the MLP */
    bool no_attn_norm;  /* attention of the first layer has no pre-norm, whatever norm_place is */
    struct layer_list layer_rope; /* enum layer_rope; default: by the three keys below */
    size_t rope_every;            /* every n-th layer is not rotated; 0: none of them */
    int rope_sliding,
        rope_full; /* enum layer_rope of layers with a window, and of the others of a model that has one */
    bool qk_norm_rotated;       /* only layers that are rotated have QK norms */
    bool temperature_unrotated; /* only layers that are not rotated have an attn_temperature */
    /* layers with full attention: values are keys as they are projected, before norm and rotation */
    bool v_is_k;

    /* Sizes */
    struct layer_list layer_heads, layer_kv_heads,
        layer_head_dim; /* default: heads, kv_heads and head_dim, and the three below */
    size_t full_heads, full_kv_heads,
        full_head_dim; /* of layers with full attention; 0: the same as in the others */
    /* The last `kv_shared` layers have no keys and values: they attend to those of the last layer before them that is
     * of the same kind. Their ffn; 0: the same. */
    size_t kv_shared, kv_shared_ffn;

    struct layer_list index_types; /* enum index_type; default: all layers have an indexer */

    /* Shares of the gate's elements that MLPs drop, one per layer (sparse_mlp() in layer_ops.c); none: no layer does */
    struct factors activation_sparsity;
    /* What struct layer_plan has as mlp_limit and expert_limit, one per layer; none: no limits */
    struct factors mlp_limits, expert_limits;

    /* Layers with experts */
    size_t expert_first; /* layers before this one have a plain MLP */
    /* of the others every n-th layer has experts: those with (layer + 1) % n = 0 */
    size_t expert_every;
    size_t expert_last;        /* layers after this one have a plain MLP; 0: none do */
    struct factors mlp_layers; /* numbers of further layers that have a plain MLP */
    /* numbers of the layers that have experts, in place of what the keys above say; none: as they say */
    struct factors expert_layers;
};

/* Defaults of keys that are not 0, for initialisers of struct config_keys. */
#define CONFIG_KEY_DEFAULTS                                                                            \
    .rope = {.theta = 10000,                                                                           \
             .factor = 1,                                                                              \
             .low = 1,                                                                                 \
             .high = 4,                                                                                \
             .fast = 32,                                                                               \
             .slow = 1,                                                                                \
             .whole = true,                                                                            \
             .original = 1},                                                                           \
    .moe = {.scale = 1}, .recurrent = {.norm = true}, .expert_every = 1

/* A configuration and its keys while its text is read, before there is a plan, or written. */
struct config_text {
    struct config config;
    struct config_keys keys;
};

/* Lets a configuration's pointers but `rope` and `plan` point into keys that are still to be completed. */
void config_borrow_keys(struct config *config, const struct config_keys *keys);

/* What the keys say of a layer, before there is a plan: its kind, its rotation, the layer whose KV entries it attends to. */
enum layer_kind keys_kind(const struct config *config, size_t layer);
enum layer_rope keys_rope(const struct config *config, size_t layer);
size_t keys_kv_source(const struct config *config, size_t layer);

/* The same by other keys than the lists layer_types, layer_rope and expert_layers; and by expert_layers alone. */
enum layer_kind keys_default_kind(const struct config *config, size_t layer);
enum layer_rope keys_default_rope(const struct config *config, size_t layer);
bool keys_default_experts(const struct config *config, size_t layer);
bool keys_list_experts(const struct config *config, size_t layer);

/* Names of enum norm_place and block_order. */
extern const char *const config_place_names[], *const config_block_names[];

/* How a list is spelled: its key, and the names of its values, which end in NULL; alias[i] is the value
 * of names[i], NULL: i. Without names, values are numbers from min to max. */
struct layer_words {
    const char *key;
    const char *const *names;
    const int *alias;
    size_t min, max;
};

/* Reads runs NAME or NAME*COUNT, separated by blanks or commas, for `layers` layers; the word "..." at
 * the end repeats the runs before it. "none" is the empty list. The result is the shortest list with
 * these values. `name` is the source of the text, for errors. */
int config_read_layers(struct layer_list *list, const char *text, const struct layer_words *words,
                       size_t layers, const char *name, struct err *err) MUST_USE;

/* Writes a line with the key and a list of `layers` layers, in the form that config_read_layers()
 * reads. */
int config_write_layers(const struct layer_list *list, const struct layer_words *words, size_t layers,
                        struct buf *text, struct err *err) MUST_USE;

/* Resets keys that have no effect beside the others, so that equal configurations have equal text, and checks what a
 * plan of the layers needs; `name` is the configuration's file, for errors. */
int config_finish_layers(struct config_text *text, const char *name, struct err *err) MUST_USE;
void config_reset_state(struct config_text *text);

/* Checks conditions that concern several keys. Needs the plan. */
int config_check(const struct config *config, const char *name, struct err *err) MUST_USE;
