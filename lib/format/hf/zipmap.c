/* A zip archive in mapped memory.
 *
 * libzip does not expose the offset of an entry's data, but it reads through the callbacks
 * below, which record offsets: reading one byte of an entry reveals its position. Thus libzip
 * is the only parser of zip headers. */
#include "format/hf/zipmap.h"

#include <stdlib.h>
#include <string.h>

#include <zip.h>

struct zipmap {
    const char *name;
    const unsigned char *data;
    size_t size, at;
    size_t read_at; /* offset of the last read by libzip */
    zip_error_t error;
    zip_source_t *source; /* NULL once the archive owns it */
    zip_t *archive;
};

/* ---- callbacks of libzip ---- */

static zip_int64_t read_bytes(struct zipmap *zip, void *out, size_t len)
{
    const size_t n = size_min(len, zip->size - zip->at);
    memcpy(out, zip->data + zip->at, n);
    zip->read_at = zip->at;
    zip->at += n;
    return (zip_int64_t)n;
}

static zip_int64_t seek(struct zipmap *zip, void *where, size_t len)
{
    const zip_int64_t to = zip_source_seek_compute_offset(zip->at, zip->size, where, len, &zip->error);
    if (to < 0)
        return -1;
    zip->at = (size_t)to;
    return 0;
}

static zip_int64_t describe(const struct zipmap *zip, zip_stat_t *st)
{
    zip_stat_init(st);
    st->valid = ZIP_STAT_SIZE;
    st->size = zip->size;
    return sizeof *st;
}

static zip_int64_t serve(void *arg, void *data, zip_uint64_t len, zip_source_cmd_t what)
{
    struct zipmap *zip = arg;
    switch (what) {
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, -1);
    case ZIP_SOURCE_OPEN: zip->at = 0; return 0;
    case ZIP_SOURCE_READ: return read_bytes(zip, data, len);
    case ZIP_SOURCE_SEEK: return seek(zip, data, len);
    case ZIP_SOURCE_TELL: return (zip_int64_t)zip->at;
    case ZIP_SOURCE_STAT: return describe(zip, data);
    case ZIP_SOURCE_ERROR: return zip_error_to_data(&zip->error, data, len);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE: return 0;
    default: zip_error_set(&zip->error, ZIP_ER_OPNOTSUPP, 0); return -1;
    }
}

/* ---- the archive ---- */

int zipmap_open(struct zipmap **out, const void *data, size_t size, const char *name, struct err *err)
{
    struct zipmap *zip = *out = calloc(1, sizeof *zip);
    zip_error_t error;
    int rc = -1;
    zip_error_init(&error);
    if (!zip) {
        err_no_memory(err, "%s", name);
        goto out;
    }
    *zip = (struct zipmap){.name = name, .data = data, .size = size};
    zip_error_init(&zip->error);
    zip->source = zip_source_function_create(serve, zip, &error);
    zip->archive = zip->source ? zip_open_from_source(zip->source, ZIP_RDONLY, &error) : NULL;
    if (!zip->archive) {
        err_set(err, "%s: the zip archive cannot be read (%s): truncated or damaged", name,
                zip_error_strerror(&error));
        goto out;
    }
    zip->source = NULL;
    rc = 0;
out:
    zip_error_fini(&error);
    if (rc < 0) {
        zipmap_free(zip);
        *out = NULL;
    }
    return rc;
}

void zipmap_free(struct zipmap *zip)
{
    if (!zip)
        return;
    if (zip->archive)
        zip_discard(zip->archive);
    if (zip->source)
        zip_source_free(zip->source);
    zip_error_fini(&zip->error);
    free(zip);
}

const char *zipmap_first(const struct zipmap *zip)
{
    return zip_get_name(zip->archive, 0, ZIP_FL_ENC_RAW);
}

bool zipmap_has(const struct zipmap *zip, const char *entry)
{
    return zip_name_locate(zip->archive, entry, ZIP_FL_ENC_RAW) >= 0;
}

static int look_up(struct zipmap *zip, const char *entry, zip_stat_t *st, struct err *err)
{
    enum { NEEDED = ZIP_STAT_INDEX | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD };
    const zip_int64_t index = zip_name_locate(zip->archive, entry, ZIP_FL_ENC_RAW);
    if (index < 0)
        return err_set(err, "%s: \"%s\" is missing from the zip archive", zip->name, entry);
    if (zip_stat_index(zip->archive, (zip_uint64_t)index, 0, st) < 0 || (st->valid & NEEDED) != NEEDED)
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
            entry, file ? zip_file_strerror(file) : zip_strerror(zip->archive));
    if (file)
        zip_fclose(file);
    return -1;
}

/* Finds the offset of an entry by reading its first byte. */
static int first_byte(struct zipmap *zip, const char *entry, zip_uint64_t index, size_t *at,
                      struct err *err)
{
    unsigned char byte;
    zip_file_t *file = zip_fopen_index(zip->archive, index, ZIP_FL_COMPRESSED);
    if (!file || zip_fread(file, &byte, 1) != 1 || zip->data[zip->read_at] != byte)
        return cannot_read(zip, file, entry, err);
    *at = zip->read_at;
    zip_fclose(file);
    return 0;
}

int zipmap_locate(struct zipmap *zip, const char *entry, const unsigned char **data, size_t *bytes,
                  struct err *err)
{
    zip_stat_t st;
    size_t at = 0;
    *data = NULL;
    *bytes = 0;
    if (look_up(zip, entry, &st, err) < 0)
        return -1;
    if (st.comp_method != ZIP_CM_STORE || st.comp_size != st.size)
        return err_set(err,
                       "%s: \"%s\" is compressed in the zip archive; save the model again with "
                       "torch.save, which does not compress",
                       zip->name, entry);
    if (st.size == 0)
        return 0;
    if (first_byte(zip, entry, st.index, &at, err) < 0)
        return -1;
    if (st.size > zip->size - at)
        return err_set(err, "%s: \"%s\" has %llu bytes at %zu, but the file ends at %zu: truncated",
                       zip->name, entry, (unsigned long long)st.size, at, zip->size);
    *data = zip->data + at;
    *bytes = (size_t)st.size;
    return 0;
}

int zipmap_read(struct zipmap *zip, const char *entry, size_t most, struct buf *out, struct err *err)
{
    zip_stat_t st;
    char more;
    if (look_up(zip, entry, &st, err) < 0)
        return -1;
    if (st.size > most)
        return err_set(err, "%s: \"%s\" in the zip archive has %llu bytes, more than %zu", zip->name,
                       entry, (unsigned long long)st.size, most);
    if (buf_reserve(out, (size_t)st.size, err) < 0)
        return -1;
    zip_file_t *file = zip_fopen_index(zip->archive, st.index, 0);
    /* Reading to the end verifies the checksum. */
    if (!file || zip_fread(file, out->data + out->len, st.size) != (zip_int64_t)st.size ||
        zip_fread(file, &more, 1) != 0)
        return cannot_read(zip, file, entry, err);
    zip_fclose(file);
    out->len += (size_t)st.size;
    out->data[out->len] = 0;
    return 0;
}
