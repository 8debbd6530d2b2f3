/* Importance of a model's inputs: the file, read and written. */
#include "format/importance.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/sniff.h"

_Static_assert(sizeof(struct importance_head) == 128 && sizeof(struct importance_matrix) == 80,
               "the file's structures");

static struct hash hash_file(const struct importance_head *head, const void *rest, size_t bytes)
{
    struct importance_head bare = *head;
    struct hasher hasher;
    memset(&bare.hash, 0, sizeof bare.hash);
    hasher_init(&hasher);
    hasher_add(&hasher, &bare, sizeof bare);
    hasher_add(&hasher, rest, bytes);
    return hasher_result(&hasher);
}

/* ---- reading ---- */

/* A name of letters that --info prints, ended by 0 and nothing but 0. */
static bool name_good(const char name[IMPORTANCE_NAME])
{
    size_t len = 0;
    while (len < IMPORTANCE_NAME && name[len] > ' ' && name[len] < 0x7f)
        len++;
    for (size_t i = len; i < IMPORTANCE_NAME; i++)
        if (name[i])
            return false;
    return len > 0 && len < IMPORTANCE_NAME;
}

static int check_head(const struct importance_head *head, size_t size, const char *name,
                      struct err *err)
{
    if (memcmp(head->magic, IMPORTANCE_MAGIC, sizeof head->magic) != 0)
        return err_set(err, "%s: is no importance file: bmc-gen --score --save-importance makes one",
                       name);
    if (head->version != IMPORTANCE_VERSION)
        return err_set(err, "%s: is of version %u, this program reads version %d: make it again", name,
                       head->version, IMPORTANCE_VERSION);
    const size_t tables = sizeof *head + (size_t)head->n_matrices * sizeof(struct importance_matrix);
    if (head->file_bytes != size || tables > size ||
        (size - tables) / sizeof(float) != head->n_numbers || (size - tables) % sizeof(float))
        return err_set(err, "%s: has %zu bytes, its head says %llu: it was cut, or is damaged", name,
                       size, (unsigned long long)head->file_bytes);
    return 0;
}

static int check_matrices(const struct importance *im, const char *name, struct err *err)
{
    uint64_t first = 0;
    for (size_t i = 0; i < im->head->n_matrices; i++) {
        const struct importance_matrix *m = &im->matrix[i];
        if (!name_good(m->name))
            return err_set(err, "%s: matrix %zu has no proper name", name, i);
        if (m->first != first || m->n == 0 || m->n > im->head->n_numbers - first)
            return err_set(err, "%s: the numbers of matrix \"%s\" are not where they should be", name,
                           m->name);
        first += m->n;
    }
    if (first != im->head->n_numbers)
        return err_set(err, "%s: has numbers that belong to no matrix", name);
    for (size_t i = 0; i < first; i++)
        if (!isfinite(im->number[i]) || im->number[i] < 0)
            return err_set(err, "%s: number %zu is no mean square", name, i);
    return 0;
}

int importance_parse(struct importance *im, const void *data, size_t size, const char *name,
                     struct err *err)
{
    *im = (struct importance){.head = data};
    if (sniff_refuse(data, size, KIND_IMPORTANCE, "an importance file", name, err) < 0)
        return -1;
    if (size < sizeof *im->head)
        return err_set(err, "%s: is no importance file: it has %zu bytes", name, size);
    if (check_head(im->head, size, name, err) < 0)
        return -1;
    im->matrix = (const void *)(im->head + 1);
    im->number = (const void *)(im->matrix + im->head->n_matrices);
    const struct hash hash = hash_file(im->head, im->matrix, size - sizeof *im->head);
    if (!hash_equal(&hash, &im->head->hash))
        return err_set(err, "%s: its hash is another: it is damaged", name);
    return check_matrices(im, name, err);
}

int importance_open(struct importance *im, const char *path, struct err *err)
{
    struct file_map map;
    *im = (struct importance){0};
    if (file_map(&map, path, err) < 0)
        return -1;
    const int rc = importance_parse(im, map.data, map.size, path, err);
    im->map = map;
    if (rc < 0)
        importance_close(im);
    return rc;
}

void importance_close(struct importance *im)
{
    file_unmap(&im->map);
    *im = (struct importance){0};
}

const float *importance_find(const struct importance *im, const char *name, size_t *n)
{
    const size_t wanted = *n;
    *n = 0;
    for (size_t i = 0; im->head && i < im->head->n_matrices; i++)
        if (strcmp(im->matrix[i].name, name) == 0) {
            *n = im->matrix[i].n;
            return *n == wanted ? im->number + im->matrix[i].first : NULL;
        }
    return NULL;
}

/* ---- writing ---- */

static int collect(struct buf *out, const struct importance_entry *entry, size_t n, struct err *err)
{
    uint64_t first = 0;
    for (size_t i = 0; i < n; i++) {
        struct importance_matrix m = {.n = entry[i].n, .first = first};
        snprintf(m.name, sizeof m.name, "%s", entry[i].name);
        first += m.n;
        if (buf_add(out, &m, sizeof m, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < n; i++)
        if (buf_add(out, entry[i].number, entry[i].n * sizeof(float), err) < 0)
            return -1;
    return 0;
}

int importance_write(const char *path, const struct hash *model_id, size_t tokens,
                     const struct importance_entry *entry, size_t n, struct err *err)
{
    struct importance_head head = {.version = IMPORTANCE_VERSION,
                                   .n_matrices = (uint32_t)n,
                                   .model_id = *model_id,
                                   .tokens = tokens};
    struct buf out = {0};
    int rc = -1;
    memcpy(head.magic, IMPORTANCE_MAGIC, sizeof head.magic);
    for (size_t i = 0; i < n; i++)
        head.n_numbers += entry[i].n;
    if (buf_add(&out, &head, sizeof head, err) < 0 || collect(&out, entry, n, err) < 0)
        goto out;
    head.file_bytes = out.len;
    head.hash = hash_file(&head, out.data + sizeof head, out.len - sizeof head);
    memcpy(out.data, &head, sizeof head);
    rc = outfile_save(path, out.data, out.len, err);
out:
    buf_release(&out);
    return rc;
}
