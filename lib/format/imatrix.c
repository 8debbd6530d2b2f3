/* Reading and writing importance matrix files. */
#include "format/imatrix.h"

#include "base/mem.h"
#include "format/detect.h"

_Static_assert(sizeof(struct imatrix_head) == 128 && sizeof(struct imatrix_record) == 80,
               "the file's structures");

static struct hash hash_file(const struct imatrix_head *head, const void *rest, size_t bytes)
{
    return hash_of_head(head, sizeof *head, offsetof(struct imatrix_head, hash), rest, bytes);
}

/* True if the name is not empty, printable ASCII without blanks, and zero-padded. */
static bool name_good(const char name[IMATRIX_NAME_SIZE])
{
    size_t len = 0;
    while (len < IMATRIX_NAME_SIZE && name[len] > ' ' && name[len] < 0x7f)
        len++;
    for (size_t i = len; i < IMATRIX_NAME_SIZE; i++)
        if (name[i])
            return false;
    return len > 0 && len < IMATRIX_NAME_SIZE;
}

static int check_head(const struct imatrix_head *head, size_t size, const char *name, struct err *err)
{
    if (memcmp(head->magic, IMATRIX_MAGIC, sizeof head->magic) != 0)
        return err_set(err, "%s: not an importance matrix; bmc-gen --score --save-imatrix writes one",
                       name);
    if (head->version != IMATRIX_VERSION)
        return err_set(err,
                       "%s: version %u is unsupported, this program reads version %d; create it again",
                       name, head->version, IMATRIX_VERSION);
    const size_t tables = sizeof *head + (size_t)head->n_matrices * sizeof(struct imatrix_record);
    if (head->file_bytes != size || tables > size ||
        (size - tables) / sizeof(float) != head->n_numbers || (size - tables) % sizeof(float))
        return err_set(err, "%s: has %zu bytes, its header says %llu: truncated or damaged", name, size,
                       (unsigned long long)head->file_bytes);
    return 0;
}

static int check_matrices(const struct imatrix *im, const char *name, struct err *err)
{
    uint64_t first = 0;
    for (size_t i = 0; i < im->head->n_matrices; i++) {
        const struct imatrix_record *m = &im->matrix[i];
        if (!name_good(m->name))
            return err_set(err, "%s: matrix %zu has an invalid name", name, i);
        if (m->first != first || m->n == 0 || m->n > im->head->n_numbers - first)
            return err_set(err, "%s: the numbers of matrix \"%s\" are at a wrong offset", name,
                           m->name);
        first += m->n;
    }
    if (first != im->head->n_numbers)
        return err_set(err, "%s: contains numbers that belong to no matrix", name);
    for (size_t i = 0; i < first; i++)
        if (!isfinite(im->number[i]) || im->number[i] < 0)
            return err_set(err, "%s: number %zu is negative or not finite", name, i);
    return 0;
}

int imatrix_parse(struct imatrix *im, const void *data, size_t size, const char *name, struct err *err)
{
    *im = (struct imatrix){.head = data};
    if (detect_refuse(data, size, KIND_IMATRIX, "an importance matrix", name, err) < 0)
        return -1;
    if (size < sizeof *im->head)
        return err_set(err, "%s: not an importance matrix: it has only %zu bytes", name, size);
    if (check_head(im->head, size, name, err) < 0)
        return -1;
    im->matrix = (const void *)(im->head + 1);
    im->number = (const void *)(im->matrix + im->head->n_matrices);
    const struct hash hash = hash_file(im->head, im->matrix, size - sizeof *im->head);
    if (!hash_equal(&hash, &im->head->hash))
        return err_set(err, "%s: hash mismatch: the file is damaged", name);
    return check_matrices(im, name, err);
}

int imatrix_open(struct imatrix *im, const char *path, struct err *err)
{
    struct file_map map;
    *im = (struct imatrix){0};
    if (file_map(&map, path, err) < 0)
        return -1;
    const int rc = imatrix_parse(im, map.data, map.size, path, err);
    im->map = map;
    if (rc < 0)
        imatrix_close(im);
    return rc;
}

void imatrix_close(struct imatrix *im)
{
    file_unmap(&im->map);
    *im = (struct imatrix){0};
}

const float *imatrix_find(const struct imatrix *im, const char *name, size_t *n)
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

static int collect(struct buf *out, const struct imatrix_entry *entry, size_t n, struct err *err)
{
    uint64_t first = 0;
    for (size_t i = 0; i < n; i++) {
        struct imatrix_record m = {.n = entry[i].n, .first = first};
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

int imatrix_write(const char *path, const struct hash *model_id, size_t tokens,
                  const struct imatrix_entry *entry, size_t n, struct err *err)
{
    struct imatrix_head head = {
        .version = IMATRIX_VERSION, .n_matrices = (uint32_t)n, .model_id = *model_id, .tokens = tokens};
    struct buf out = {0};
    int rc = -1;
    memcpy(head.magic, IMATRIX_MAGIC, sizeof head.magic);
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
