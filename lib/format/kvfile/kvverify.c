/* Verifies every byte of a snapshot against its tables and bmc-kv(5). */
#include "base/mem.h"
#include "base/threads.h"
#include "format/kvfile/kvfile.h"
#include "format/verify.h"

static size_t n_blocks(const struct kvfile *file)
{
    return (size_t)file->head->section[KVFILE_BLOCKS].bytes / sizeof(struct kvfile_block);
}

enum kv_finding { FINE, NOT_FINITE, NOT_ZERO };

struct kv_verifier {
    const struct kvfile *file;
    /* [n_blocks]: the sequence and layer of each block, and the number of its matrix; of a recurrent state, the number
     * of layers and its own */
    struct kv_place {
        size_t seq, layer, index;
    } * place;
    enum kv_finding *finding; /* [n_blocks]: result of check_block() */
};

static int open_verifier(struct kv_verifier *r, const struct kvfile *file, struct err *err)
{
    const size_t layers = kvfile_layers(file->head);
    size_t n = 0;
    *r = (struct kv_verifier){file, mem_alloc(n_blocks(file), sizeof *r->place),
                              mem_zalloc(n_blocks(file), sizeof *r->finding)};
    if (!r->place || !r->finding)
        return err_no_memory(err, "%zu blocks", n_blocks(file));
    for (size_t s = 0; s < file->n_seqs; s++) {
        for (size_t l = 0; l < layers; l++) {
            const struct kvfile_sizes sizes = kvfile_sizes_of(file, l);
            for (size_t m = 0; m < kvfile_matrices(&sizes); m++)
                r->place[n++] = (struct kv_place){s, l, m};
        }
        for (size_t i = 0; i < kvfile_states(file, s); i++)
            r->place[n++] = (struct kv_place){s, layers, i};
    }
    return 0;
}

/* Names a block in errors: "V of layer 3 of sequence 0". */
static void name_block(const struct kv_verifier *r, size_t block, char *text, size_t size)
{
    const struct kv_place *place = &r->place[block];
    if (place->layer == kvfile_layers(r->file->head))
        snprintf(text, size, "recurrent state %zu of sequence %zu", place->index, place->seq);
    else
        snprintf(text, size, "%s of layer %zu of sequence %zu", place->index ? "V" : "K", place->layer,
                 place->seq);
}

static int check_hashes(const struct kv_verifier *r, const char *path, kvfile_progress *progress,
                        void *arg, struct err *err)
{
    const struct kvfile *file = r->file;
    const size_t n = n_blocks(file);
    struct verify_section *section = mem_alloc(n, sizeof *section);
    struct hash hash;
    char name[80], want[17], found[17];
    size_t damaged;
    if (!section)
        return err_no_memory(err, "%s: %zu blocks", path, n);
    for (size_t i = 0; i < n; i++)
        section[i] = (struct verify_section){file->map.data + file->block[i].offset,
                                             (size_t)file->block[i].bytes, &file->block[i].hash};
    int rc = verify_sections(section, n, progress, arg, &damaged, &hash, err);
    free(section);
    if (rc < 0 || damaged == SIZE_MAX)
        return rc;
    name_block(r, damaged, name, sizeof name);
    hash_hex(&file->block[damaged].hash, 8, want);
    hash_hex(&hash, 8, found);
    return err_set(err, "%s: %s has hash %s.., expected %s..: it is damaged", path, name, found, want);
}

/* Fails unless the bytes between header, blocks and tables are zero. */
static int check_gaps(const struct kvfile *file, const char *path, struct err *err)
{
    for (size_t at = sizeof *file->head; at < KVFILE_ALIGN; at++)
        if (file->map.data[at])
            return err_set(err, "%s: byte %zu after the header is not zero: the file is damaged", path,
                           at);
    for (size_t i = 0; i < n_blocks(file); i++)
        for (size_t at = (size_t)(file->block[i].offset + file->block[i].bytes); at % KVFILE_ALIGN;
             at++)
            if (file->map.data[at])
                return err_set(err, "%s: byte %zu after a block is not zero: the file is damaged", path,
                               at);
    return 0;
}

static bool all_finite(const unsigned char *at, size_t rows, enum dtype type, size_t d)
{
    bool finite = true;
    for (size_t i = 0; i < rows && finite; i++)
        finite = dtype_finite(type, at + i * dtype_row_bytes(type, d), d);
    return finite;
}

static bool all_zero(const unsigned char *at, size_t bytes)
{
    unsigned char any = 0;
    for (size_t i = 0; i < bytes; i++)
        any |= at[i];
    return !any;
}

/* Checks that the KV entries of block i are finite and the unused ones zero. */
static void check_block(void *arg, size_t i)
{
    const struct kv_verifier *r = arg;
    const struct kvfile_head *head = r->file->head;
    const struct kv_place *place = &r->place[i];
    const struct kvfile_seq *seq = &r->file->seq[place->seq];
    const unsigned char *at = r->file->map.data + r->file->block[i].offset;
    if (place->layer == kvfile_layers(head)) {
        r->finding[i] = dtype_finite(DTYPE_F32, at, (size_t)r->file->block[i].bytes / sizeof(float))
                            ? FINE
                            : NOT_FINITE;
        return;
    }
    const struct kvfile_sizes sizes = kvfile_sizes_of(r->file, place->layer);
    const enum dtype type = (enum dtype)sizes.type[place->index];
    const size_t d = (size_t)sizes.head_dim, row = dtype_row_bytes(type, d), n = (size_t)seq->n_rows,
                 cap = (size_t)seq->cap;
    for (size_t h = 0; h < sizes.kv_heads && r->finding[i] == FINE; h++, at += cap * row)
        r->finding[i] = !all_finite(at, n, type, d)                ? NOT_FINITE
                        : !all_zero(at + n * row, (cap - n) * row) ? NOT_ZERO
                                                                   : FINE;
}

static int check_rows(struct kv_verifier *r, const char *path, struct err *err)
{
    const struct kvfile *file = r->file;
    char name[80];
    parallel_for(n_blocks(file), file->map.size, check_block, r);
    for (size_t i = 0; i < n_blocks(file); i++) {
        if (r->finding[i] == FINE)
            continue;
        name_block(r, i, name, sizeof name);
        return r->finding[i] == NOT_FINITE
                   ? err_set(err, "%s: %s has values that are NaN or infinite: the file is damaged",
                             path, name)
                   : err_set(err, "%s: %s is not zero after its %llu KV entries: the file is damaged",
                             path, name, (unsigned long long)file->seq[r->place[i].seq].n_rows);
    }
    return 0;
}

int kvfile_verify(const struct kvfile *file, const char *path, kvfile_progress *progress, void *arg,
                  struct err *err)
{
    struct kv_verifier r;
    const int rc = open_verifier(&r, file, err) < 0 || check_hashes(&r, path, progress, arg, err) < 0 ||
                           check_gaps(file, path, err) < 0 || check_rows(&r, path, err) < 0
                       ? -1
                       : 0;
    free(r.place);
    free(r.finding);
    return rc;
}
