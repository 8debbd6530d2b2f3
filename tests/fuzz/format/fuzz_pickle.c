/* The pickle of a PyTorch checkpoint: every tensor is inside its storage, every string inside
 * the pickle. */
#include <stdlib.h>

#include "format/hf/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool right)
{
    if (!right)
        abort();
}

static void need_inside(struct pickle_text text, const uint8_t *data, size_t size)
{
    const uint8_t *at = (const uint8_t *)text.data;
    need(at >= data && text.len <= size && at <= data + size - text.len);
}

/* The highest element index, if any. */
static void need_in_storage(const struct pickle_tensor *t)
{
    size_t last = t->first;
    need(t->n_dims <= SOURCE_MAX_DIMS);
    for (size_t i = 0; i < t->n_dims; i++)
        if (t->dim[i] == 0)
            return;
    for (size_t i = 0; i < t->n_dims; i++) {
        size_t step;
        need(size_mul(t->dim[i] - 1, t->stride[i], &step) && size_add(last, step, &last));
    }
    need(last < t->storage_elements);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pickle pickle;
    struct err err;
    if (pickle_parse(&pickle, data, size, "fuzz", &err) < 0)
        return 0;
    need(pickle.n_entries > 0);
    for (size_t i = 0; i < pickle.n_entries; i++) {
        need_inside(pickle.entry[i].name, data, size);
        need_inside(pickle.entry[i].tensor->storage, data, size);
        need_in_storage(pickle.entry[i].tensor);
    }
    pickle_release(&pickle);
    return 0;
}
