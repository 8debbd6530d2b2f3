/* Verifies every byte of model.bmc against its header: bmc-model(5), "Checks". */
#include <pthread.h>

#include "base/mem.h"
#include "quant/pack.h"
#include "base/threads.h"
#include "format/bmc/bmclayout.h"
#include "format/verify.h"

/* Copies the first name of tensor `index` to `name`, for errors. */
static void name_of(const struct bmc_file *file, size_t index, char *name, size_t size)
{
    *name = 0;
    for (size_t i = 0; i < file->n_names && !*name; i++)
        if (file->name[i].tensor == index) {
            const size_t len = size_min(file->name[i].len, size - 1);
            memcpy(name, file->text + file->name[i].text, len);
            name[len] = 0;
        }
}

/* Fails unless the alignment gaps between tensors are zero. */
static int check_gaps(const struct bmc_file *file, const char *path, struct err *err)
{
    size_t end = file->header_bytes;
    for (size_t i = 0; i <= file->n_tensors; i++) {
        const bool last = i == file->n_tensors;
        const size_t next = last ? size_max(end, file->draft_offset) : (size_t)file->tensor[i].offset;
        for (; end < next; end++)
            if (file->data[end])
                return err_set(err, "%s: byte %zu, %s, is not zero: the file is damaged", path, end,
                               last ? "before the draft head" : "between two tensors");
        end += last ? 0 : (size_t)file->tensor[i].bytes;
    }
    return 0;
}

static int check_stored(const struct bmc_file *file, const char *path, bmc_progress *progress,
                        void *arg, struct err *err)
{
    struct verify_section *section = mem_alloc(file->n_tensors, sizeof *section);
    struct hash hash;
    size_t damaged;
    char name[128], want[17], found[17];
    if (!section)
        return err_no_memory(err, "%s: %zu tensors", path, file->n_tensors);
    for (size_t i = 0; i < file->n_tensors; i++)
        section[i] = (struct verify_section){file->data + file->tensor[i].offset,
                                             (size_t)file->tensor[i].bytes, &file->tensor[i].stored};
    int rc = verify_sections(section, file->n_tensors, progress, arg, &damaged, &hash, err);
    free(section);
    if (rc < 0 || damaged == SIZE_MAX)
        return rc;
    name_of(file, damaged, name, sizeof name);
    hash_hex(&file->tensor[damaged].stored, 8, want);
    hash_hex(&hash, 8, found);
    return err_set(
        err, "%s: tensor \"%s\" has hash %s.., expected %s..: it is damaged; convert the model again",
        path, name, found, want);
}

enum bmc_finding { FINE, OTHER_ELEMENTS, PADDED, NOT_FINITE, NO_MEMORY };

struct meaning {
    const struct bmc_file *file;
    enum bmc_finding *finding; /* [n_tensors]: result of checking each tensor */
    bmc_progress *progress;
    void *arg;
    pthread_mutex_t lock; /* guards `done` and calls of `progress` */
    size_t done;
};

/* True if n contiguous rows of `in` elements are finite. */
static bool rows_finite(enum dtype type, const char *rows, size_t n, size_t in)
{
    for (size_t i = 0; i < n; i++)
        if (!dtype_finite(type, rows + i * dtype_row_bytes(type, in), in))
            return false;
    return true;
}

/* Computes the canonical hash of a packed tensor by unpacking it in blocks of PACK_OUT rows. Each
 * block is packed again and compared, which verifies its padding. */
static enum bmc_finding hash_packed(const struct bmc_tensor *tensor, const unsigned char *data,
                                    struct hash *hash)
{
    const struct bmc_matrices m = bmc_matrices_of(tensor);
    const size_t in = m.in, in_padded = layout_in(LAYOUT_PACKED, in),
                 row = dtype_row_bytes(tensor->dtype, in),
                 block = pack_block_bytes(tensor->dtype, in_padded),
                 rows_bytes = round_up(PACK_OUT * row, 64);
    char *rows = mem_alloc(1, rows_bytes + block), *again = rows ? rows + rows_bytes : NULL;
    enum bmc_finding finding = rows ? FINE : NO_MEMORY;
    struct hasher hasher;
    hasher_init(&hasher);
    for (size_t o = 0, n; o < m.n * m.out && finding == FINE; o += n, data += block) {
        n = size_min(PACK_OUT, m.out - o % m.out);
        unpack_block(rows, data, in_padded, n, in, tensor->dtype);
        hasher_add(&hasher, rows, n * row);
        pack_rows(again, in_padded, rows, in, n, in, tensor->dtype);
        if (memcmp(again, data, block) != 0)
            finding = PADDED;
        else if (!rows_finite(tensor->dtype, rows, n, in))
            finding = NOT_FINITE;
    }
    *hash = hasher_result(&hasher);
    free(rows);
    return finding;
}

static void check_tensor(void *arg, size_t i)
{
    struct meaning *m = arg;
    const struct bmc_tensor *tensor = &m->file->tensor[i];
    const unsigned char *data = m->file->data + tensor->offset;
    struct hash hash;
    if (tensor->layout == LAYOUT_PACKED) {
        m->finding[i] = hash_packed(tensor, data, &hash);
    } else {
        m->finding[i] = rows_finite(tensor->dtype, (const char *)data, 1,
                                    (size_t)tensor->bytes / dtype_size(tensor->dtype))
                            ? FINE
                            : NOT_FINITE;
        hash = hash_of(data, (size_t)tensor->bytes);
    }
    if (m->finding[i] == FINE && !hash_equal(&hash, &tensor->canonical))
        m->finding[i] = OTHER_ELEMENTS;
    pthread_mutex_lock(&m->lock);
    m->done += (size_t)tensor->bytes;
    if (m->progress)
        m->progress(m->arg, m->done, m->file->size);
    pthread_mutex_unlock(&m->lock);
}

static int report_findings(const struct bmc_file *file, const enum bmc_finding *finding,
                           const char *path, struct err *err)
{
    static const char *const text[] = {
        [OTHER_ELEMENTS] = "does not match its canonical hash; convert the model again",
        [PADDED] = "has non-zero padding; convert the model again",
        [NOT_FINITE] = "has weights that are NaN or infinite; convert the model again",
        [NO_MEMORY] = "cannot be verified: out of memory",
    };
    char name[128];
    for (size_t i = 0; i < file->n_tensors; i++)
        if (finding[i] != FINE) {
            name_of(file, i, name, sizeof name);
            return err_set(err, "%s: tensor \"%s\" %s", path, name, text[finding[i]]);
        }
    return 0;
}

/* Verifies the hashes of tensor values, which do not depend on the layout in the file, and model_id,
 * by which snapshots, profiles and acceptance files identify a model. */
static int check_meaning(const struct bmc_file *file, const char *path, bmc_progress *progress,
                         void *arg, struct err *err)
{
    struct meaning m = {.file = file, .progress = progress, .arg = arg};
    char want[17], found[17];
    m.finding = mem_zalloc(file->n_tensors, sizeof *m.finding);
    if (!m.finding)
        return err_no_memory(err, "%s: %zu tensors", path, file->n_tensors);
    pthread_mutex_init(&m.lock, NULL);
    parallel_for(file->n_tensors, file->size, check_tensor, &m);
    pthread_mutex_destroy(&m.lock);
    int rc = report_findings(file, m.finding, path, err);
    free(m.finding);
    const struct hash id = bmc_model_id(file);
    hash_hex(&id, 8, found);
    hash_hex(&file->model_id, 8, want);
    if (rc == 0 && !hash_equal(&id, &file->model_id))
        rc = err_set(
            err,
            "%s: its contents have model_id %s.., the header says %s..: it claims to be another "
            "model; convert it again",
            path, found, want);
    return rc;
}

static int verify_image(const struct bmc_file *file, const char *path, bmc_progress *progress,
                        void *arg, struct err *err)
{
    return check_stored(file, path, progress, arg, err) < 0 || check_gaps(file, path, err) < 0
               ? -1
               : check_meaning(file, path, progress, arg, err);
}

int bmc_file_verify(const struct bmc_file *file, const char *path, bmc_progress *progress, void *arg,
                    struct err *err)
{
    struct bmc_file draft;
    char name[4096 + 32];
    if (verify_image(file, path, progress, arg, err) < 0)
        return -1;
    if (!file->draft_offset)
        return 0;
    snprintf(name, sizeof name, "draft head of %s", path);
    return bmc_file_open_draft(&draft, file, name, err) < 0
               ? -1
               : verify_image(&draft, name, progress, arg, err);
}
