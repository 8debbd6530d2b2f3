/* adapter_config.json of PEFT: the scale of each layer's adapter; features that are not supported are
 * refused by name. */
#ifndef BMC_LORA_CONFIG_H
#define BMC_LORA_CONFIG_H

#include "base/json.h"

struct lora_config {
    json_t *root;
    size_t rank; /* of layers that rank_pattern does not list */
    double alpha;
    const char *base_class; /* the architecture of its model, borrowed from `root`; NULL: unknown */
    bool rslora;            /* the scale is alpha / sqrt(rank), else alpha / rank */
    bool ranks;             /* rank_pattern lists others */
    const json_t *alphas;   /* alpha_pattern: an object */
};

/* Parses `size` bytes of a configuration called `name`; the caller releases it. */
int lora_config_parse(struct lora_config *config, const char *text, size_t size, const char *name,
                      struct err *err) MUST_USE;
void lora_config_release(struct lora_config *config);

/* The scale of a layer whose adapter has this rank. */
double lora_config_scale(const struct lora_config *config, const char *module, size_t rank);

#endif
