/* GGUF files: accepted tensors are inside the file, and any metadata gives an error or valid
 * texts and JSON. */
#include <math.h>

#include "format/gguf/gguf_config.h"
#include "format/gguf/gguf_tokenizer.h"
#include "quant/quant_types.h"
#include "tests/fuzz/support/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tensors(const struct gguf *gguf, const unsigned char *data, size_t size)
{
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        const struct source_tensor *tensor = &gguf->tensor[i];
        if (tensor->data < data || tensor->bytes > size || tensor->data > data + size - tensor->bytes ||
            gguf_find(gguf, tensor->name) != tensor)
            abort();
    }
}

/* A block and its transcoded form: equal values, or not finite. Finite values of a type whose scales are
 * powers of two may be refused as too large for sums of products. */
static void read_block(enum dtype from, const unsigned char *block)
{
    const struct block_type *type = &block_types[from];
    unsigned char row[2 * BLOCK_MAX_ELEMENTS];
    float x[BLOCK_MAX_ELEMENTS], taken[BLOCK_MAX_ELEMENTS];
    type->dequantize(x, block, 1);
    if (!dtype_is_quantized(type->stored))
        return;
    type->transcode(row, block, type->elements);
    dtype_to_f32(taken, type->stored, row, type->elements);
    const bool finite = dtype_finite(DTYPE_F32, x, type->elements);
    if (dtype_finite(type->stored, row, type->elements) != finite &&
        !(finite && quant_types[type->stored].power))
        abort();
    for (size_t i = 0; i < type->elements; i++)
        if (!(x[i] == taken[i]) && isfinite(x[i]))
            abort();
}

static void read_last(const struct gguf *gguf)
{
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        const struct block_type *type = &block_types[gguf->tensor[i].type];
        if (gguf->tensor[i].bytes >= type->bytes)
            read_block(gguf->tensor[i].type,
                       gguf->tensor[i].data + gguf->tensor[i].bytes - type->bytes);
    }
}

static void make_config(struct gguf *gguf)
{
    const struct gguf_set set = {gguf, 1};
    const struct gguf_arch *arch;
    json_t *config = NULL;
    struct err err;
    char line[64];
    if (gguf_arch_find(&arch, &set, "fuzz", &err) == 0) {
        if (gguf_config(&config, arch, &set, "fuzz", &err) == 0 && !json_is_object(config))
            abort();
        if (gguf_tensor_line(arch, "layer.q.weight", 2, line, sizeof line))
            abort();
    }
    json_decref(config);
    config = NULL;
    if (gguf_generation(&config, &set, &err) == 0 && !json_is_object(config))
        abort();
    json_decref(config);
}

static void make_texts(const struct gguf *gguf)
{
    struct buf tokenizer = {0}, config = {0};
    json_t *root = NULL;
    struct err err;
    if (gguf_tokenizer_json(gguf, "fuzz", &tokenizer, &err) == 0 &&
        json_parse(tokenizer.data, tokenizer.len, "fuzz", &root, &err) < 0)
        abort();
    json_decref(root);
    root = NULL;
    if (gguf_tokenizer_config(gguf, &config, &err) == 0 && config.len &&
        json_parse(config.data, config.len, "fuzz", &root, &err) < 0)
        abort();
    json_decref(root);
    buf_release(&tokenizer);
    buf_release(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf gguf;
    struct err err;
    unsigned char *copy = input_copy(data, size);
    if (!copy)
        return 0;
    if (gguf_parse(&gguf, copy, size, "fuzz", true, &err) == 0) {
        check_tensors(&gguf, copy, size);
        read_last(&gguf);
        make_config(&gguf);
        make_texts(&gguf);
        gguf_release(&gguf);
    }
    input_free(copy, size);
    return 0;
}
