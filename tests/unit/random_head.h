/* A draft head in memory for tests of speculation. */
#ifndef BMC_TEST_RANDOM_HEAD_H
#define BMC_TEST_RANDOM_HEAD_H

#include <stdlib.h>

#include "check.h"
#include "model/config/config_keys.h"
#include "model/draft_head.h"

/* A draft head with random weights, which uses the target's embedding and LM head. Where it has a map,
 * it has an LM head of its own, for `vocab` of the target's tokens, from the second on. */
static inline struct model *random_head(const struct model *target, size_t vocab, uint64_t seed)
{
    size_t layer[MAX_FEATURES];
    struct config config = target->config;
    struct config_keys keys = *config.keys;
    struct model *head;
    struct err err;
    config.layers = keys.draft.features = 1;
    keys.draft.feature_hidden = config.hidden;
    config.target_embed = true;
    config.target_head = vocab == 0;
    keys.draft.map = vocab != 0;
    keys.draft.input_vocab = vocab ? config.vocab : 0;
    config.vocab = vocab ? vocab : config.vocab;
    config.keys = &keys;
    if (model_synthesize(&head, &config, "a head", DTYPE_F32, seed, &err) < 0 ||
        draft_head_attach(head, target, layer, &err) < 0) {
        printf("not ok - %s\n", err.text);
        exit(1);
    }
    if (vocab)
        for (size_t i = 0; i < vocab; i++)
            ((float *)(uintptr_t)head->weights.draft_offset)[i] = 1;
    return head;
}

#endif
