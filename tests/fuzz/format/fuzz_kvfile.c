/* Untrusted snapshots: opening, verifying and continuing. Sizes and the hash are fixed up first. */
#include <stdlib.h>

#include "tests/fuzz/support/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads every token, every byte of names, and both ends of every head of every block and of every recurrent state. */
static unsigned walk(const struct kvfile *file, const unsigned char *data)
{
    const struct kvfile_head *head = file->head;
    unsigned sum = 0;
    for (size_t s = 0; s < file->n_seqs; s++) {
        const struct kvfile_seq *seq = &file->seq[s];
        for (size_t i = 0; i < seq->n_tokens; i++)
            sum += file->token[seq->token + i];
        for (size_t i = 0; i < seq->id_bytes; i++)
            sum += (unsigned char)file->text[seq->id + i];
        struct sampler_options options = sampling_defaults();
        struct err err;
        if (kvfile_sampling(file, s, &options, "fuzz", &err) == 0)
            sum += (unsigned)options.n_dry_texts;
        free((void *)(uintptr_t)options.dry_text);
        for (size_t l = 0; l < kvfile_layers(head); l++)
            for (int v = 0; v < 2; v++) {
                const struct kvfile_sizes sizes = kvfile_sizes_of(file, l);
                const struct kvfile_block *block = kvfile_block_of(file, s, l, v);
                const size_t row = dtype_row_bytes((enum dtype)head->dtype, (size_t)sizes.head_dim),
                             heads = (size_t)sizes.kv_heads, cap = (size_t)seq->cap;
                sum += data[block->offset] + data[block->offset + (heads * cap - 1) * row + row - 1];
            }
        for (size_t i = 0; i < kvfile_states(file, s); i++)
            if (kvfile_state_at(file, s, i)) {
                const unsigned char *state = kvfile_state(file, s, i);
                sum += state[0] + state[head->state_bytes - 1];
            }
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    volatile unsigned sink; /* keeps the reads from being optimised out */
    struct kvfile file;
    struct err err;
    unsigned char *copy = input_copy(data, size);
    if (!copy)
        return 0;
    input_seal_snapshot(copy, size);
    if (kvfile_parse(&file, copy, size, "fuzz", &err) == 0) {
        file.map = (struct file_map){copy, size};
        sink = walk(&file, copy);
        (void)sink;
        (void)!kvfile_verify(&file, "fuzz", NULL, NULL, &err);
    }
    input_free(copy, size);
    return 0;
}
