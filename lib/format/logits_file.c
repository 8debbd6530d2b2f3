/* Reading and writing saved next-token distributions. */
#include "format/logits_file.h"

#include "format/detect.h"

_Static_assert(sizeof(struct logits_head) == 256, "the head has no padding");

enum { BEGIN_BYTES = 12 }; /* of a record, before its lists */

/* Bytes of a record; 0: the head is not one of a file that this program writes. */
static size_t record_bytes(const struct logits_head *head)
{
    enum { MOST = 1 << 28 };
    const size_t n = head->listed ? head->listed : (size_t)head->vocab;
    return head->vocab - 1 >= MOST || head->listed > head->vocab
               ? 0
               : round_up(BEGIN_BYTES + head->listed * sizeof(uint32_t) + n * sizeof(f16), 4);
}

struct logits_record logits_record_at(const struct logits_head *head, const void *data)
{
    char *at = (char *)(uintptr_t)data;
    struct logits_record r = {.top = (void *)at,
                              .following = (void *)(at + 4),
                              .rest = (void *)(at + 8),
                              .logprob = (void *)(at + BEGIN_BYTES),
                              .n = (size_t)head->vocab};
    if (head->listed) {
        r.n = head->listed;
        r.id = (void *)r.logprob;
        r.logprob = (void *)(r.id + r.n);
    }
    return r;
}

static struct hash finish_hash(struct hasher *records, struct logits_head head)
{
    head.hash = (struct hash){{0}};
    hasher_add(records, &head, sizeof head);
    return hasher_result(records);
}

struct hash logits_hash(const struct logits_head *head, size_t records_bytes)
{
    struct hasher hasher;
    hasher_init(&hasher);
    hasher_add(&hasher, head + 1, records_bytes);
    return finish_hash(&hasher, *head);
}

static bool is_name(const char *name, size_t size)
{
    const size_t len = strnlen(name, size);
    for (size_t i = 0; i < len; i++)
        if (name[i] <= ' ' || name[i] > '~')
            return false;
    return len && len < size;
}

static int check_head(const struct logits_head *head, size_t size, const char *name, struct err *err)
{
    if (memcmp(head->magic, LOGITS_MAGIC, sizeof head->magic) != 0)
        return err_set(err, "%s: has no saved logits; bmc-prof quality --save-logits writes them",
                       name);
    if (head->version != LOGITS_VERSION)
        return err_set(
            err, "%s: version %u is unsupported, this program reads version %d; save the logits again",
            name, head->version, LOGITS_VERSION);
    const size_t bytes = record_bytes(head), records = size - sizeof *head;
    if (!bytes || head->record_bytes != bytes || head->file_bytes != size || records % bytes ||
        head->tokens != records / bytes)
        return err_set(
            err, "%s: has %zu bytes, its header says %llu for %llu tokens: truncated or damaged", name,
            size, (unsigned long long)head->file_bytes, (unsigned long long)head->tokens);
    if (head->window < 2)
        return err_set(err,
                       "%s: was saved with windows of %llu tokens, in which none predicts another: the "
                       "file is damaged",
                       name, (unsigned long long)head->window);
    if (!is_name(head->precision, sizeof head->precision) ||
        !is_name(head->kv_type, sizeof head->kv_type))
        return err_set(err, "%s: the precision or cache type has no name: the file is damaged", name);
    return 0;
}

int logits_parse(struct logits_file *file, const void *data, size_t size, const char *name,
                 struct err *err)
{
    *file = (struct logits_file){.head = data};
    if (detect_refuse(data, size, KIND_LOGITS, "saved logits", name, err) < 0)
        return -1;
    if (size < sizeof *file->head)
        return err_set(err, "%s: has no saved logits: it has only %zu bytes", name, size);
    if (check_head(file->head, size, name, err) < 0)
        return -1;
    const struct hash hash = logits_hash(file->head, size - sizeof *file->head);
    return hash_equal(&hash, &file->head->hash)
               ? 0
               : err_set(err, "%s: hash mismatch: the file is damaged", name);
}

int logits_open(struct logits_file *file, const char *path, struct err *err)
{
    struct file_map map;
    *file = (struct logits_file){0};
    if (file_map(&map, path, err) < 0)
        return -1;
    const int rc = logits_parse(file, map.data, map.size, path, err);
    file->map = map;
    if (rc < 0)
        logits_close(file);
    return rc;
}

void logits_close(struct logits_file *file)
{
    file_unmap(&file->map);
    *file = (struct logits_file){0};
}

/* Also false for NaN. */
static bool is_logprob(float x) { return x <= 0 && x >= -3e38F; }

int logits_record(struct logits_record *record, const struct logits_file *file, size_t i,
                  const char *name, struct err *err)
{
    const struct logits_head *head = file->head;
    const struct logits_record r = *record =
        logits_record_at(head, (const char *)(head + 1) + i * head->record_bytes);
    bool good = *r.top < head->vocab && is_logprob(*r.following) &&
                (is_logprob(*r.rest) || *r.rest == -INFINITY);
    for (size_t k = 0; k < r.n; k++)
        good = good && is_logprob(f16_to_f32(r.logprob[k]));
    for (size_t k = 0; r.id && k < r.n; k++)
        good = good && r.id[k] < head->vocab && (!k || r.id[k - 1] < r.id[k]);
    return good ? 0
                : err_set(err,
                          "%s: token %zu has no distribution: ids that ascend and logarithms of "
                          "probabilities are expected",
                          name, i);
}

/* ---- writing ---- */

int logits_writer_open(struct logits_writer *w, const char *path, const struct logits_head *about,
                       struct err *err)
{
    *w = (struct logits_writer){.head = *about, .out.fd = -1};
    memcpy(w->head.magic, LOGITS_MAGIC, sizeof w->head.magic);
    w->head.version = LOGITS_VERSION;
    w->head.record_bytes = record_bytes(&w->head);
    w->head.file_bytes = sizeof w->head;
    hasher_init(&w->hasher);
    if (outfile_open(&w->out, path, err) < 0)
        return -1;
    const int rc = w->out.seekable
                       ? outfile_write(&w->out, &w->head, sizeof w->head, err)
                       : err_set(err, "%s: not a regular file; saved logits must be one", path);
    if (rc < 0)
        logits_writer_abort(w);
    return rc;
}

int logits_writer_add(struct logits_writer *w, const void *records, size_t n, struct err *err)
{
    const size_t bytes = n * (size_t)w->head.record_bytes;
    hasher_add(&w->hasher, records, bytes);
    w->head.tokens += n;
    w->head.file_bytes += bytes;
    return outfile_write(&w->out, records, bytes, err);
}

int logits_writer_commit(struct logits_writer *w, struct err *err)
{
    w->head.hash = finish_hash(&w->hasher, w->head);
    if (outfile_write_at(&w->out, 0, &w->head, sizeof w->head, err) < 0 ||
        outfile_commit(&w->out, err) < 0) {
        logits_writer_abort(w);
        return -1;
    }
    return 0;
}

void logits_writer_abort(struct logits_writer *w) { outfile_abort(&w->out); }
