/* How much types of KV entries cost a model, and which types its layers have within a budget of that cost (--cache-kld).
 *
 * The cost is the mean KL divergence of next-token distributions from those with f32 entries. It is measured with all
 * keys, and with all values, of each type; and with the keys, or the values, of one layer at a time of one type, the
 * probe. Costs of different layers add up, and a layer has the same part of them whatever the type:
 *
 *   cost(types) = sum over layers l and matrices m of kld(type of l and m, m) * part(l, m) / sum over l of part(l, m)
 *
 * A file has the lines, in any order, each once but for lines that begin with a number:
 *
 *   version 1
 *   model_id HASH           the model that they were measured on
 *   tokens COUNT            of the text
 *   probe TYPE
 *   type.TYPE K V           the cost of all keys, and of all values, of the type
 *   LAYER K V               for each layer of the cache: the cost of its keys, and of its values, of the probe's type
 *
 * Where V is a part of K (MLA), the costs of values are 0. */
#pragma once

#include "base/mem.h"
#include "kv/kv.h"

enum { KV_SENSITIVITY_TYPES = 16 };

struct kv_sensitivity {
    size_t tokens;
    enum dtype probe;
    size_t n_types, layers;
    struct {
        enum dtype type;
        double kld[2]; /* of all keys, of all values */
    } type[KV_SENSITIVITY_TYPES];
    double (*part)[2]; /* [layers] */
};

/* Reads a text for a cache of this shape of the model `model_id`. On error there is nothing to release. */
int kv_sensitivity_parse(struct kv_sensitivity *s, const char *text, size_t size, const char *name,
                         const struct kv_shape *shape, const struct hash *model_id,
                         struct err *err) MUST_USE;
void kv_sensitivity_release(struct kv_sensitivity *s);

/* Appends the text of a file. */
int kv_sensitivity_format(const struct kv_sensitivity *s, const struct hash *model_id, struct buf *text,
                          struct err *err) MUST_USE;

/* Types that were chosen for a cache within a budget. */
struct kv_chosen_types {
    struct kv_types *layer; /* [layers] */
    size_t layers;
    double kld; /* predicted */
};

/* Chooses types as --cache-kld names them: "X", a budget, with the costs in the file `path` (NULL: there is none), or "X:FILE".
 * On error there is nothing to release. */
int kv_chosen_types_open(struct kv_chosen_types *chosen, const char *text, const char *path,
                         const struct kv_shape *shape, const struct hash *model_id,
                         struct err *err) MUST_USE;
void kv_chosen_types_release(struct kv_chosen_types *chosen);
struct cache_types kv_chosen_types_of(const struct kv_chosen_types *chosen);

/* Chooses types[layers] of a cache of this shape, with few bytes, at a cost of at most `budget`, and sets *cost to what
 * is predicted. K and V of a layer are both quantised or both not, which attention reads fastest. Greedy: the next layer is
 * the one that saves the most bytes per cost. */
int kv_sensitivity_choose(const struct kv_sensitivity *s, const struct kv_shape *shape, double budget,
                          struct kv_types *types, double *cost, struct err *err) MUST_USE;
