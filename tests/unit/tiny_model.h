/* A small model in memory for tests of the generation loop. */
#ifndef BMC_TEST_TINY_MODEL_H
#define BMC_TEST_TINY_MODEL_H

#include "check.h"
#include "model/model.h"
#include "text/import/tok_build.h"

/* Synthetic weights, and a tokenizer of bytes: vocabulary 61, two layers. The process has one
 * such model. */
static inline struct model *tiny_model(size_t context)
{
    const struct config config = {.layers = 2,
                                  .hidden = 32,
                                  .embed = 32,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 8,
                                  .ffn = 48,
                                  .vocab = 61,
                                  .context = context,
                                  .norm = NORM_RMS,
                                  .position = POSITION_ROPE,
                                  .activation = ACT_SILU,
                                  .mlp = MLP_GATED,
                                  .final_norm = true,
                                  .norm_eps = 1e-5,
                                  .rope_theta = 1e4};
    static struct buf blob; /* stays */
    struct model *model;
    struct err err;
    if (model_synthesize(&model, &config, "a test", DTYPE_F32, 5, &err) < 0 ||
        tokenizer_build_bytes(256, &blob, &err) < 0 ||
        tokenizer_open(&model->tok, blob.data, blob.len, &err) < 0) {
        printf("not ok - %s\n", err.text);
        exit(1);
    }
    return model;
}

#endif
