/* The two hashes that identify a model.bmc: of its header (the file), and model_id (the model). */
#include "format/bmc/bmclayout.h"

struct hash bmc_header_hash(const void *header, size_t header_bytes)
{
    static const struct hash zero;
    const size_t at = offsetof(struct bmc_head, header_hash);
    const unsigned char *bytes = header;
    struct hasher hasher;
    hasher_init(&hasher);
    hasher_add(&hasher, bytes, at);
    hasher_add(&hasher, &zero, sizeof zero);
    hasher_add(&hasher, bytes + at + sizeof zero, header_bytes - at - sizeof zero);
    return hasher_result(&hasher);
}

static void add_number(struct hasher *hasher, uint64_t number)
{
    hasher_add(hasher, &number, sizeof number);
}

struct hash bmc_model_id(const struct bmc_file *file)
{
    struct hasher hasher;
    hasher_init(&hasher);
    add_number(&hasher, file->config_bytes);
    hasher_add(&hasher, file->config, file->config_bytes);
    add_number(&hasher, file->tokenizer_bytes);
    hasher_add(&hasher, file->tokenizer, file->tokenizer_bytes);
    for (size_t i = 0; i < file->n_names; i++) {
        const struct bmc_name *name = &file->name[i];
        const struct bmc_tensor *tensor = &file->tensor[name->tensor];
        add_number(&hasher, name->len);
        hasher_add(&hasher, file->text + name->text, name->len);
        add_number(&hasher, tensor->dtype);
        for (size_t k = 0; k < BMC_MAX_DIMS; k++)
            add_number(&hasher, tensor->shape[k]);
        hasher_add(&hasher, &tensor->canonical, sizeof tensor->canonical);
    }
    return hasher_result(&hasher);
}
