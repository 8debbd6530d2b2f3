/* The tensors that a decoder has, by role: name in model.bmc, shape, condition and place in struct
 * weights. bmc-convert, synthetic weights and the opening of a model all walk this one table. */
#ifndef BMC_ROLES_H
#define BMC_ROLES_H

#include "base/dtype.h"
#include "model/config.h"

/* Sizes that shapes are made of. */
enum dim {
    DIM_NONE, /* no second dimension: a vector */
    DIM_HIDDEN,
    DIM_EMBED,
    DIM_Q,      /* H * d */
    DIM_KV,     /* KV heads * d */
    DIM_Q_NORM, /* d, or H * d: what a norm of queries is over */
    DIM_K_NORM,
    DIM_FFN,
    DIM_VOCAB,
    DIM_POSITIONS /* context + position_offset */
};

size_t config_dim(const struct config *config, enum dim dim);

/* What a synthetic tensor is filled with. */
enum fill { FILL_RANDOM, FILL_ONE, FILL_ZERO };

struct role {
    const char *name; /* "layer." in front: one in every layer */
    enum dim out, in;
    bool (*wanted)(const struct config *config); /* NULL: always */
    enum fill fill;
    size_t at; /* of the struct mat or float pointer in struct layer or struct weights */
};

/* In the order of the file: what is read together lies together. */
extern const struct role roles[];
extern const size_t n_roles;

/* The role of that name, or NULL. */
const struct role *role_find(const char *name);

bool role_in_layer(const struct role *role);
bool role_wanted(const struct role *role, const struct config *config);

/* A table of which a step looks up rows; its bytes may be a head's, too. */
bool role_is_table(const struct role *role);

/* A table that no product reads. */
bool role_looked_up(const struct role *role, const struct config *config);

/* Matrices that products read are packed, a tied embedding with them, and all of few bits; vectors, and tables that are
 * only looked up, lie in rows. */
enum layout role_layout(const struct role *role, const struct config *config, enum dtype type);

enum { ROLE_NAME_SIZE = 64 };

/* "layers.3.q.weight" for the role "layer.q.weight"; `layer` is ignored for roles outside layers. */
void role_tensor_name(const struct role *role, size_t layer, char name[ROLE_NAME_SIZE]);

#endif
