/* Untrusted model.bmc: opening reads header, configuration, tokenizer tables and weights. Sizes
 * and the header hash are fixed up first. */
#include "quant/pack.h"
#include "tests/fuzz/support/input.h"
#include "model/weights.h"
#include "text/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first and last row as stored. */
static void read_ends(const struct mat *mat)
{
    float *row = mat->in <= 1 << 20 ? malloc((mat->in + 1) * sizeof *row) : NULL;
    if (row && mat->data) {
        mat_fetch_row(row, mat, 0);
        mat_fetch_row(row, mat, mat->out - 1);
    }
    free(row);
}

static void open_parts(const struct bmc_file *file)
{
    struct conf conf;
    struct config config;
    struct weights weights;
    struct tokenizer *tok = NULL;
    struct err err;
    if (conf_parse(&conf, file->config, file->config_bytes, "fuzz", &err) < 0)
        return;
    const bool read = config_read(&config, &conf, &err) == 0;
    if (read &&
        (config_is_draft_head(&config) ||
         tokenizer_open(&tok, file->tokenizer, file->tokenizer_bytes, &err) == 0) &&
        weights_bind(&weights, &config, file, "fuzz", &err) == 0) {
        read_ends(&weights.embed);
        read_ends(&weights.head.weight);
        for (size_t i = 0; i < config.layers; i++) {
            read_ends(&weights.layer[i].q.weight);
            read_ends(&weights.layer[i].k.weight);
            read_ends(&weights.layer[i].v.weight);
            read_ends(&weights.layer[i].up.weight);
        }
        weights_release(&weights);
    }
    tokenizer_free(tok);
    if (read)
        config_close(&config);
    conf_release(&conf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bmc_file file, draft;
    struct err err;
    unsigned char *copy = input_copy(data, size);
    if (!copy)
        return 0;
    input_seal_model(copy, size);
    if (bmc_file_parse(&file, copy, size, "fuzz", &err) == 0) {
        (void)bmc_file_find(&file, "layers.0.q.weight");
        open_parts(&file);
        if (file.draft_offset && bmc_file_open_draft(&draft, &file, "fuzz", &err) == 0)
            open_parts(&draft);
        (void)!bmc_file_verify(&file, "fuzz", NULL, NULL, &err);
    }
    input_free(copy, size);
    return 0;
}
