/* A PyTorch checkpoint as written by torch.save() since version 1.6: a zip archive with
 *
 *    NAME/data.pkl    a pickle that describes the tensors
 *    NAME/byteorder   "little" (newer versions)
 *    NAME/data/KEY    a storage, uncompressed, 64-byte aligned
 *
 * Tensors are strided views of storages, which are used in place; several may share a storage. */
#include <dlfcn.h>
#include <pthread.h>
#include <zip.h>

#include "base/mem.h"
#include "format/hf/pickle.h"
#include "format/tensorfile.h"

/* ---- a zip archive in mapped memory ---- */

/* libzip does not expose the offset of an entry's data, but it reads through the callbacks below, which record
 * offsets: reading one byte of an entry reveals its position. Thus libzip is the only parser of zip headers. */
struct zipmap {
    const char *name;
    const unsigned char *data;
    size_t size, at;
    size_t read_at; /* offset of the last read by libzip */
    zip_error_t error;
    zip_source_t *source; /* NULL once the archive owns it */
    zip_t *archive;
};

/* ---- loading libzip ---- */

/* libzip is loaded when the first archive is opened: all programs convert models, few meet an archive, and loading
 * it takes half as long as starting a program, since it needs libcrypto. */
/* clang-format off */
#define FUNCTIONS(X) \
    X(discard) X(error_fini) X(error_init) X(error_set) X(error_strerror) X(error_to_data) X(fclose) X(file_strerror) \
    X(fopen_index) X(fread) X(get_name) X(libzip_version) X(name_locate) X(open_from_source) X(source_free) X(source_function_create) \
    X(source_make_command_bitmap) X(source_seek_compute_offset) X(stat_index) X(stat_init) X(strerror)
/* clang-format on */

static struct {
#define POINTER(name) __typeof__(zip_##name) *name;
    FUNCTIONS(POINTER)
#undef POINTER
} libzip;

static struct err not_loaded; /* why; empty: it is loaded */

static void load_libzip(void)
{
    static const char *const sonames[] = {"libzip.so.4", "libzip.so.5"};
    static const struct {
        const char *name;
        size_t at;
    } functions[] = {
#define ROW(name) {"zip_" #name, offsetof(__typeof__(libzip), name)},
        FUNCTIONS(ROW)
#undef ROW
    };
    void *library = NULL;
    for (size_t i = 0; i < ARRAY_LEN(sonames) && !library; i++)
        library = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library && i < ARRAY_LEN(functions); i++) {
        void *function = dlsym(library, functions[i].name);
        memcpy((char *)&libzip + functions[i].at, &function, sizeof function);
        library = function ? library : NULL;
    }
    if (!library) {
        const char *why = dlerror();
        err_set(&not_loaded,
                "libzip, which reads PyTorch checkpoints, cannot be loaded (%s): install libzip4 or "
                "libzip5",
                why ? why : "it lacks functions");
    }
}

static int need_libzip(struct err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_libzip);
    return *not_loaded.text ? err_set(err, "%s", not_loaded.text) : 0;
}

const char *torchzip_library(void)
{
    struct err ignored;
    return need_libzip(&ignored) < 0 ? "(not installed)" : libzip.libzip_version();
}

/* ---- callbacks of libzip ---- */

static zip_int64_t read_bytes(struct zipmap *zip, void *out, size_t len)
{
    const size_t n = size_min(len, zip->size - zip->at);
    memcpy(out, zip->data + zip->at, n);
    zip->read_at = zip->at;
    zip->at += n;
    return (zip_int64_t)n;
}

static zip_int64_t seek_source(struct zipmap *zip, void *where, size_t len)
{
    const zip_int64_t to =
        libzip.source_seek_compute_offset(zip->at, zip->size, where, len, &zip->error);
    if (to < 0)
        return -1;
    zip->at = (size_t)to;
    return 0;
}

static zip_int64_t describe_source(const struct zipmap *zip, zip_stat_t *st)
{
    libzip.stat_init(st);
    st->valid = ZIP_STAT_SIZE;
    st->size = zip->size;
    return sizeof *st;
}

static zip_int64_t serve_source(void *arg, void *data, zip_uint64_t len, zip_source_cmd_t what)
{
    struct zipmap *zip = arg;
    switch (what) {
    case ZIP_SOURCE_SUPPORTS:
        return libzip.source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                                 ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                                 ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, -1);
    case ZIP_SOURCE_OPEN: zip->at = 0; return 0;
    case ZIP_SOURCE_READ: return read_bytes(zip, data, len);
    case ZIP_SOURCE_SEEK: return seek_source(zip, data, len);
    case ZIP_SOURCE_TELL: return (zip_int64_t)zip->at;
    case ZIP_SOURCE_STAT: return describe_source(zip, data);
    case ZIP_SOURCE_ERROR: return libzip.error_to_data(&zip->error, data, len);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE: return 0;
    default: libzip.error_set(&zip->error, ZIP_ER_OPNOTSUPP, 0); return -1;
    }
}

/* Opens an archive of `size` bytes called `name`; `data` and `name` are borrowed.
 * ---- the archive ---- */
static void zipmap_free(struct zipmap *zip)
{
    if (!zip)
        return;
    if (zip->archive)
        libzip.discard(zip->archive);
    if (zip->source)
        libzip.source_free(zip->source);
    libzip.error_fini(&zip->error);
    free(zip);
}

static int zipmap_open(struct zipmap **out, const void *data, size_t size, const char *name,
                       struct err *err)
{
    struct zipmap *zip = *out = calloc(1, sizeof *zip);
    zip_error_t error;
    int rc = -1;
    libzip.error_init(&error);
    if (!zip) {
        err_no_memory(err, "%s", name);
        goto out;
    }
    *zip = (struct zipmap){.name = name, .data = data, .size = size};
    libzip.error_init(&zip->error);
    zip->source = libzip.source_function_create(serve_source, zip, &error);
    zip->archive = zip->source ? libzip.open_from_source(zip->source, ZIP_RDONLY, &error) : NULL;
    if (!zip->archive) {
        err_set(err, "%s: the zip archive cannot be read (%s): truncated or damaged", name,
                libzip.error_strerror(&error));
        goto out;
    }
    zip->source = NULL;
    rc = 0;
out:
    libzip.error_fini(&error);
    if (rc < 0) {
        zipmap_free(zip);
        *out = NULL;
    }
    return rc;
}

/* The name of the first entry, or NULL. */
static const char *zipmap_first(const struct zipmap *zip)
{
    return libzip.get_name(zip->archive, 0, ZIP_FL_ENC_RAW);
}

static bool zipmap_has(const struct zipmap *zip, const char *entry)
{
    return libzip.name_locate(zip->archive, entry, ZIP_FL_ENC_RAW) >= 0;
}

static int stat_entry(struct zipmap *zip, const char *entry, zip_stat_t *st, struct err *err)
{
    enum { NEEDED = ZIP_STAT_INDEX | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD };
    const zip_int64_t index = libzip.name_locate(zip->archive, entry, ZIP_FL_ENC_RAW);
    if (index < 0)
        return err_set(err, "%s: \"%s\" is missing from the zip archive", zip->name, entry);
    if (libzip.stat_index(zip->archive, (zip_uint64_t)index, 0, st) < 0 ||
        (st->valid & NEEDED) != NEEDED)
        return err_set(err, "%s: \"%s\" in the zip archive is damaged", zip->name, entry);
    if (st->valid & ZIP_STAT_ENCRYPTION_METHOD && st->encryption_method != ZIP_EM_NONE)
        return err_set(err,
                       "%s: the zip archive is encrypted (\"%s\"), which is not supported; unpack it "
                       "and save the model again",
                       zip->name, entry);
    return 0;
}

/* Reports a read error and closes the entry, if open. */
static int cannot_read(const struct zipmap *zip, zip_file_t *file, const char *entry, struct err *err)
{
    err_set(err, "%s: \"%s\" in the zip archive cannot be read (%s): truncated or damaged", zip->name,
            entry, file ? libzip.file_strerror(file) : libzip.strerror(zip->archive));
    if (file)
        libzip.fclose(file);
    return -1;
}

/* Finds the offset of an entry by reading its first byte. */
static int locate_first_byte(struct zipmap *zip, const char *entry, zip_uint64_t index, size_t *at,
                             struct err *err)
{
    unsigned char byte;
    zip_file_t *file = libzip.fopen_index(zip->archive, index, ZIP_FL_COMPRESSED);
    if (!file || libzip.fread(file, &byte, 1) != 1 || zip->data[zip->read_at] != byte)
        return cannot_read(zip, file, entry, err);
    *at = zip->read_at;
    libzip.fclose(file);
    return 0;
}

/* Sets *data to the bytes of an uncompressed entry in the mapped archive, NULL if it is empty.
 * Compressed or encrypted entries are an error. */
static int zipmap_locate(struct zipmap *zip, const char *entry, const unsigned char **data,
                         size_t *bytes, struct err *err)
{
    zip_stat_t st;
    size_t at = 0;
    *data = NULL;
    *bytes = 0;
    if (stat_entry(zip, entry, &st, err) < 0)
        return -1;
    if (st.comp_method != ZIP_CM_STORE || st.comp_size != st.size)
        return err_set(err,
                       "%s: \"%s\" is compressed in the zip archive; save the model again with "
                       "torch.save, which does not compress",
                       zip->name, entry);
    if (st.size == 0)
        return 0;
    if (locate_first_byte(zip, entry, st.index, &at, err) < 0)
        return -1;
    if (st.size > zip->size - at)
        return err_set(err, "%s: \"%s\" has %llu bytes at %zu, but the file ends at %zu: truncated",
                       zip->name, entry, (unsigned long long)st.size, at, zip->size);
    *data = zip->data + at;
    *bytes = (size_t)st.size;
    return 0;
}

/* Appends the contents of an entry, decompressed, after verifying its checksum; more than `max`
 * bytes are an error. */
static int zipmap_read(struct zipmap *zip, const char *entry, size_t max, struct buf *out,
                       struct err *err)
{
    zip_stat_t st;
    char more;
    if (stat_entry(zip, entry, &st, err) < 0)
        return -1;
    if (st.size > max)
        return err_set(err, "%s: \"%s\" in the zip archive has %llu bytes, more than %zu", zip->name,
                       entry, (unsigned long long)st.size, max);
    if (buf_reserve(out, (size_t)st.size, err) < 0)
        return -1;
    zip_file_t *file = libzip.fopen_index(zip->archive, st.index, 0);
    /* Reading to the end verifies the checksum. */
    if (!file || libzip.fread(file, out->data + out->len, st.size) != (zip_int64_t)st.size ||
        libzip.fread(file, &more, 1) != 0)
        return cannot_read(zip, file, entry, err);
    libzip.fclose(file);
    out->len += (size_t)st.size;
    out->data[out->len] = 0;
    return 0;
}

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
    AUTO(buf_release) struct buf order = {0};
    int rc = entry_name(t, "byteorder", (struct pickle_text){"", 0}, entry, err);
    if (rc == 0 && zipmap_has(t->zip, entry)) {
        rc = zipmap_read(t->zip, entry, MAX_ENTRY_NAME, &order, err);
        if (rc == 0 && strcmp(order.data, "little") != 0)
            rc = err_set(err, "%s: byte order \"%s\" is not supported, only little is", t->name,
                         order.data);
    }
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

static int place_tensor(struct torch *t, struct source_tensor *tensor, const struct pickle_tensor *from,
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
        if (place_tensor(t, tensor, entry->tensor, err) < 0)
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
    if (check_kind(data, size, name, err) == 0 && need_libzip(err) == 0 &&
        zipmap_open(&t.zip, data, size, name, err) == 0 && read_pickle(&t, err) == 0)
        rc = read_tensors(&t, file, err);
    pickle_release(&t.pickle);
    buf_release(&t.text);
    zipmap_free(t.zip);
    if (rc < 0)
        tensor_file_release(file);
    return rc;
}
