/* LoRA adapters, GGUF or safetensors with a configuration: accepted modules are pairs of matrices inside
 * the file. Input: 'G' and a GGUF file; or a byte, the length of the configuration in 2 bytes, the
 * configuration, and the safetensors file. */
#include <math.h>
#include <stdlib.h>

#include "format/lora_file.h"
#include "tests/fuzz/support/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tensor(const struct source_tensor *tensor, const unsigned char *data, size_t size)
{
    if (tensor->n_dims != 2 || tensor->data < data || tensor->bytes > size ||
        tensor->data > data + size - tensor->bytes)
        abort();
}

static void check_modules(const struct lora_file *file, const unsigned char *data, size_t size)
{
    for (const struct lora_module *m = file->module; m < file->module + file->n_modules; m++) {
        check_tensor(m->a, data, size);
        check_tensor(m->b, data, size);
        if (!m->rank || m->a->dim[0] != m->rank || m->b->dim[1] != m->rank || !isfinite(m->scale))
            abort();
        if (m > file->module && strcmp(m[-1].name, m->name) >= 0)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lora_file file = {0};
    struct err err;
    unsigned char *copy;
    int rc;
    if (size < 3)
        return 0;
    const bool gguf = data[0] == 'G';
    const size_t config = gguf ? 0 : data[1] + 256 * (size_t)data[2], at = gguf ? 1 : 3;
    if (config > size - at)
        return 0;
    const size_t rest = size - at - config;
    if (!(copy = input_copy(data + at + config, rest)))
        return 0;
    if (gguf)
        rc = lora_parse_gguf(&file, copy, rest, "fuzz", &err);
    else
        rc = lora_parse_peft(&file, copy, rest, (const char *)data + at, config, "fuzz", &err);
    if (rc == 0)
        check_modules(&file, copy, rest);
    lora_file_release(&file);
    input_free(copy, rest);
    return 0;
}
