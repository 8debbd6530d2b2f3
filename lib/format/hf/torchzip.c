/* A PyTorch checkpoint as written by torch.save() since version 1.6: a zip archive with
 *
 *    NAME/data.pkl    a pickle that describes the tensors
 *    NAME/byteorder   "little" (newer versions)
 *    NAME/data/KEY    a storage, uncompressed, 64-byte aligned
 *
 * Tensors are strided views of storages, which are used in place; several may share a storage. */
#include "format/tensorfile.h"

#include <stdlib.h>
#include <string.h>

#include "format/hf/pickle.h"
#include "format/tensors.h"
#include "format/hf/zipmap.h"

enum { MAX_ENTRY_NAME = 512 };

struct torch {
    const char *name; /* file name */
    struct zipmap *zip;
    int prefix_len; /* length of NAME, with which `prefix` begins */
    const char *prefix;
    struct buf text; /* the pickle */
    struct pickle pickle;
};

/* True for the format before PyTorch 1.6 (a sequence of pickles with a magic number), or before
 * 0.1.10 (tar). */
static bool is_old(const unsigned char *data, size_t size)
{
    static const unsigned char magic[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c,
                                          0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
    enum { TAR_MAGIC_AT = 257 };
    return (size > sizeof magic && memcmp(data, magic, sizeof magic) == 0) ||
           (size > TAR_MAGIC_AT + 5 && memcmp(data + TAR_MAGIC_AT, "ustar", 5) == 0);
}

static int check_kind(const void *data, size_t size, const char *name, struct err *err)
{
    if (detect_refuse(data, size, KIND_ZIP, "a PyTorch checkpoint", name, err) < 0)
        return -1;
    if (file_format(data, size) == KIND_ZIP)
        return 0;
    if (is_old(data, size))
        return err_set(err,
                       "%s: the PyTorch format before version 1.6 is not supported; save it again: "
                       "torch.save(torch.load(FILE), FILE)",
                       name);
    return err_set(err, "%s: not a PyTorch checkpoint (a zip archive)", name);
}

static int entry_name(const struct torch *t, const char *what, struct pickle_text key, char *entry,
                      struct err *err)
{
    const int len = snprintf(entry, MAX_ENTRY_NAME, "%.*s/%s%.*s", t->prefix_len, t->prefix, what,
                             (int)size_min(key.len, MAX_ENTRY_NAME), key.data);
    if (len >= MAX_ENTRY_NAME || memchr(key.data, 0, key.len))
        return err_set(err, "%s: invalid storage key", t->name);
    return 0;
}

static int check_order(struct torch *t, struct err *err)
{
    char entry[MAX_ENTRY_NAME];
    struct buf order = {0};
    int rc = entry_name(t, "byteorder", (struct pickle_text){"", 0}, entry, err);
    if (rc == 0 && zipmap_has(t->zip, entry)) {
        rc = zipmap_read(t->zip, entry, MAX_ENTRY_NAME, &order, err);
        if (rc == 0 && strcmp(order.data, "little") != 0)
            rc = err_set(err, "%s: byte order \"%s\" is not supported, only little is", t->name,
                         order.data);
    }
    buf_release(&order);
    return rc;
}

static int read_pickle(struct torch *t, struct err *err)
{
    char entry[MAX_ENTRY_NAME];
    t->prefix = zipmap_first(t->zip);
    t->prefix_len = t->prefix ? (int)size_min(strcspn(t->prefix, "/"), MAX_ENTRY_NAME) : 0;
    if (entry_name(t, "data.pkl", (struct pickle_text){"", 0}, entry, err) < 0)
        return -1;
    if (!zipmap_has(t->zip, entry))
        return err_set(err, "%s: a zip archive, but not a PyTorch checkpoint: \"%s\" is missing",
                       t->name, entry);
    if (zipmap_read(t->zip, entry, PICKLE_MAX_BYTES, &t->text, err) < 0 || check_order(t, err) < 0)
        return -1;
    return pickle_parse(&t->pickle, t->text.data, t->text.len, t->name, err);
}

/* True if the elements of the tensor are contiguous and in row-major order. */
static bool in_order(const struct pickle_tensor *from)
{
    size_t next = 1;
    for (size_t i = from->n_dims; i-- > 0;) {
        if (from->dim[i] == 0)
            return true;
        if (from->dim[i] > 1 && from->stride[i] != next)
            return false;
        next *= from->dim[i]; /* cannot overflow: bounded by the storage */
    }
    return true;
}

/* Bytes from the start of the tensor's first element to the end of its last. */
static size_t reach_bytes(const struct pickle_tensor *from)
{
    size_t last = 0;
    for (size_t i = 0; i < from->n_dims; i++) {
        if (from->dim[i] == 0)
            return 0;
        last += (from->dim[i] - 1) * from->stride[i];
    }
    return (last + 1) * from->type->bytes;
}

static int place(struct torch *t, struct source_tensor *tensor, const struct pickle_tensor *from,
                 struct err *err)
{
    char entry[MAX_ENTRY_NAME];
    const unsigned char *data;
    size_t bytes, needed;
    if (entry_name(t, "data/", from->storage, entry, err) < 0 ||
        zipmap_locate(t->zip, entry, &data, &bytes, err) < 0)
        return -1;
    if (!size_mul(from->storage_elements, from->type->bytes, &needed) || needed != bytes)
        return err_set(err, "%s: \"%s\" has %zu bytes, the pickle expects %zu elements of %zu: damaged",
                       t->name, entry, bytes, from->storage_elements, from->type->bytes);
    tensor->type = from->type->type;
    tensor->type_name = from->type->name;
    tensor->n_dims = from->n_dims;
    memcpy(tensor->dim, from->dim, sizeof tensor->dim);
    tensor->strided = !in_order(from);
    memcpy(tensor->stride, from->stride, sizeof tensor->stride);
    tensor->bytes = reach_bytes(from);
    tensor->data = tensor->bytes ? data + from->first * from->type->bytes : data;
    return 0;
}

/* Sets the name of a tensor to a zero-terminated copy, which file->names owns. */
static int keep_name(struct tensor_file *file, struct source_tensor *tensor, struct pickle_text name,
                     const struct torch *t, struct err *err)
{
    if (json_push(file->names, json_text(name.data, name.len), err) < 0)
        return err_prefix(err, "%s", t->name);
    const json_t *kept = json_array_get(file->names, json_array_size(file->names) - 1);
    tensor->name = json_string_value(kept);
    if (strlen(tensor->name) != json_string_length(kept))
        return err_set(err, "%s: the name of tensor \"%s\" contains a zero byte", t->name,
                       tensor->name);
    return 0;
}

static int read_tensors(struct torch *t, struct tensor_file *file, struct err *err)
{
    file->names = json_array();
    file->tensor = calloc(t->pickle.n_entries, sizeof *file->tensor);
    if (!file->names || !file->tensor)
        return err_no_memory(err, "%s: its list of tensors", t->name);
    for (size_t i = 0; i < t->pickle.n_entries; i++) {
        struct source_tensor *tensor = &file->tensor[file->n_tensors++];
        const struct pickle_entry *entry = &t->pickle.entry[i];
        if (keep_name(file, tensor, entry->name, t, err) < 0)
            return -1;
        if (place(t, tensor, entry->tensor, err) < 0)
            return -1;
    }
    tensors_sort(file->tensor, file->n_tensors);
    return tensors_check_names(file->tensor, file->n_tensors, t->name, err);
}

int torchzip_parse(struct tensor_file *file, const void *data, size_t size, const char *name,
                   struct err *err)
{
    struct torch t = {.name = name};
    int rc = -1;
    *file = (struct tensor_file){0};
    if (check_kind(data, size, name, err) == 0 && zipmap_open(&t.zip, data, size, name, err) == 0 &&
        read_pickle(&t, err) == 0)
        rc = read_tensors(&t, file, err);
    pickle_release(&t.pickle);
    buf_release(&t.text);
    zipmap_free(t.zip);
    if (rc < 0)
        tensor_file_release(file);
    return rc;
}
