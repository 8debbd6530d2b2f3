/* Saved logits: of accepted files, every record that is read has ids of the vocabulary and usable numbers. Files are also read
 * with their hash made right, since no other would be. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/logits_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const struct logits_file *file)
{
    for (size_t i = 0; i < file->head->tokens; i++) {
        struct logits_record r;
        struct err err;
        if (logits_record(&r, file, i, "fuzz", &err) < 0)
            continue;
        if (*r.top >= file->head->vocab || !(*r.following <= 0) || !(*r.rest <= 0))
            abort();
        for (size_t k = 0; k < r.n; k++)
            if (!(f16_to_f32(r.logprob[k]) <= 0) || (r.id && r.id[k] >= file->head->vocab))
                abort();
    }
}

static void read_file(const void *data, size_t size)
{
    struct logits_file file;
    struct err err;
    if (logits_parse(&file, data, size, "fuzz", &err) == 0)
        walk(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct logits_head *copy = mem_alloc(size + 1, 1); /* aligned, as a mapped file is */
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    read_file(copy, size);
    if (size >= sizeof *copy) {
        copy->hash = logits_hash(copy, size - sizeof *copy);
        read_file(copy, size);
    }
    free(copy);
    return 0;
}
