/* Writing KV snapshots: KV entries as sequences finish, then the tables, then the header. */
#include "base/hash.h"
#include "base/mem.h"
#include "base/output_path.h"
#include "format/kvfile/kvfile.h"
#include "format/detect.h"

struct kvwriter {
    struct kvfile_head head;
    struct buf sizes; /* struct kvfile_sizes of each layer */
    struct outfile out;
    struct buf section[KVFILE_SECTIONS];
    size_t n_tokens;
};

/* Refuses to overwrite anything but a snapshot or an empty file. Pipes are refused before
 * opening, which would block. */
static int check_replaced(const char *path, struct err *err)
{
    struct output_path place;
    if (output_path_find(&place, path, err) < 0)
        return -1;
    if (place.kind == OUTPUT_STREAM || place.kind == OUTPUT_OPEN)
        return err_set(err, "%s: not a regular file; a snapshot must be one", path);
    if (place.kind == OUTPUT_FILE && place.st.st_size && file_detect(place.path) != KIND_SNAPSHOT)
        return err_set(
            err, "%s: exists and is not a snapshot, so it is not overwritten; use another name", path);
    return 0;
}

static const struct kvfile_sizes *sizes_of(const struct kvwriter *w, size_t layer)
{
    return (const struct kvfile_sizes *)(const void *)w->sizes.data + layer;
}

/* The oldest version that has what the layers need. */
static unsigned version_of(const struct kvwriter *w)
{
    bool types = false, sizes = false;
    if (w->head.state_bytes)
        return KVFILE_VERSION_STATES;
    if (w->head.version == KVFILE_VERSION_SCALED)
        return KVFILE_VERSION_SCALED;
    for (size_t l = 0; l < w->head.layers; l++) {
        const struct kvfile_sizes *own = sizes_of(w, l);
        types = types || own->type[0] != w->head.dtype || own->type[1] != w->head.dtype;
        sizes = sizes || memcmp(own, sizes_of(w, 0), offsetof(struct kvfile_sizes, type)) != 0;
    }
    if (types || sizes)
        return types ? KVFILE_VERSION_TYPES : KVFILE_VERSION_SIZES;
    return w->head.v_dim ? KVFILE_VERSION_LATENT : KVFILE_VERSION;
}

int kvwriter_open(struct kvwriter **out, const char *path, const struct kvfile_head *about,
                  const struct kvfile_sizes *sizes, struct err *err)
{
    static const unsigned char page[KVFILE_ALIGN];
    struct kvwriter *w = mem_zalloc(1, sizeof *w);
    *out = NULL;
    if (!w)
        return err_no_memory(err, "a snapshot");
    w->head = *about;
    memcpy(w->head.magic, KVFILE_MAGIC, sizeof w->head.magic);
    w->head.kv_heads = sizes->kv_heads;
    w->head.head_dim = sizes->head_dim;
    w->head.v_dim = sizes->v_dim;
    w->head.dtype = sizes->type[0];
    if (buf_add(&w->sizes, sizes, (size_t)w->head.layers * sizeof *sizes, err) < 0 ||
        check_replaced(path, err) < 0 || outfile_open_private(&w->out, path, err) < 0) {
        buf_release(&w->sizes);
        free(w);
        return -1;
    }
    w->head.version = version_of(w);
    const int rc = outfile_write(&w->out, page, sizeof page, err);
    if (rc < 0)
        kvwriter_abort(w);
    else
        *out = w;
    return rc;
}

void kvwriter_abort(struct kvwriter *w)
{
    if (!w)
        return;
    outfile_abort(&w->out);
    for (size_t i = 0; i < KVFILE_SECTIONS; i++)
        buf_release(&w->section[i]);
    buf_release(&w->sizes);
    free(w);
}

/* Pads the output with zeros to a multiple of KVFILE_ALIGN. */
static int align_output(struct kvwriter *w, struct err *err)
{
    static const unsigned char zeros[KVFILE_ALIGN];
    return outfile_write(&w->out, zeros, round_up(w->out.written, KVFILE_ALIGN) - w->out.written, err);
}

/* Writes K, or V if `v`, of one layer, head by head: n_rows entries, then zeros. `rows` is a buffer for
 * one head of head_bytes, zeroed behind n_rows. */
static int write_block(struct kvwriter *w, const struct kvwriter_seq *seq, size_t layer, bool v,
                       char *rows, size_t head_bytes, struct err *err)
{
    struct kvfile_block block = {.offset = w->out.written};
    struct long_hasher hasher;
    long_hasher_init(&hasher);
    for (size_t h = 0; h < sizes_of(w, layer)->kv_heads; h++) {
        if (seq->read(seq->arg, layer, v, h, rows, err) < 0)
            return -1;
        long_hasher_add(&hasher, rows, head_bytes);
        if (outfile_write(&w->out, rows, head_bytes, err) < 0)
            return -1;
    }
    block.bytes = w->out.written - block.offset;
    block.hash = long_hasher_result(&hasher);
    if (align_output(w, err) < 0)
        return -1;
    return buf_add(&w->section[KVFILE_BLOCKS], &block, sizeof block, err);
}

static int write_state(struct kvwriter *w, const void *state, size_t tokens, struct err *err)
{
    struct kvfile_block block = {
        .offset = w->out.written, .bytes = w->head.state_bytes, .tokens = tokens};
    struct long_hasher hasher;
    long_hasher_init(&hasher);
    long_hasher_add(&hasher, state, (size_t)block.bytes);
    block.hash = long_hasher_result(&hasher);
    if (outfile_write(&w->out, state, (size_t)block.bytes, err) < 0 || align_output(w, err) < 0)
        return -1;
    return buf_add(&w->section[KVFILE_BLOCKS], &block, sizeof block, err);
}

static int write_states(struct kvwriter *w, const struct kvwriter_seq *seq, struct err *err)
{
    const size_t n = (size_t)seq->entry.n_states;
    AUTO(free_auto) char *state = mem_alloc(1, size_max((size_t)w->head.state_bytes, 1));
    int rc = state ? 0 : err_no_memory(err, "%s: a recurrent state", w->out.path);
    for (size_t i = 0; i < n && rc == 0; i++) {
        seq->read_state(seq->arg, seq->state_at[i], state);
        rc = write_state(w, state, seq->state_at[i], err);
    }
    return rc;
}

static int write_layer(struct kvwriter *w, const struct kvwriter_seq *seq, size_t layer,
                       struct err *err)
{
    const struct kvfile_sizes *sizes = sizes_of(w, layer);
    const size_t cap = (size_t)seq->entry.cap;
    int rc = 0;
    for (size_t v = 0; v < kvfile_matrices(sizes) && rc == 0; v++) {
        size_t bytes;
        char *rows = size_mul(cap, kvfile_row_bytes(sizes, v), &bytes) ? mem_zalloc(1, bytes) : NULL;
        rc = rows ? write_block(w, seq, layer, v, rows, bytes, err)
                  : err_no_memory(err, "%s: %zu KV entries of one head", w->out.path, cap);
        free(rows);
    }
    return rc;
}

int kvwriter_add(struct kvwriter *w, const struct kvwriter_seq *seq, struct err *err)
{
    struct kvfile_seq entry = seq->entry;
    int rc = 0;
    if (entry.n_states)
        entry.block = w->section[KVFILE_BLOCKS].len / sizeof(struct kvfile_block);
    for (size_t l = 0; l < w->head.layers && rc == 0; l++)
        rc = write_layer(w, seq, l, err);
    if (rc < 0 || write_states(w, seq, err) < 0)
        return -1;
    entry.token = w->n_tokens;
    entry.id = w->section[KVFILE_TEXT].len;
    entry.id_bytes = seq->id ? strlen(seq->id) : 0;
    entry.settings = entry.id + entry.id_bytes;
    entry.settings_bytes = seq->settings->len;
    w->n_tokens += (size_t)entry.n_tokens;
    if (entry.least && w->head.version == KVFILE_VERSION)
        w->head.version = KVFILE_VERSION_WINDOW;
    w->head.n_sequences++;
    if ((seq->id && buf_add(&w->section[KVFILE_TEXT], seq->id, (size_t)entry.id_bytes, err) < 0) ||
        buf_add(&w->section[KVFILE_TEXT], seq->settings->data, seq->settings->len, err) < 0)
        return -1;
    if (buf_add(&w->section[KVFILE_TOKENS], seq->token, (size_t)entry.n_tokens * sizeof *seq->token,
                err) < 0)
        return -1;
    return buf_add(&w->section[KVFILE_SEQUENCES], &entry, sizeof entry, err);
}

bool kvwriter_has(const struct kvwriter *w, const char *id)
{
    const struct kvfile_seq *seq = (const void *)w->section[KVFILE_SEQUENCES].data;
    const size_t len = id ? strlen(id) : 0;
    for (size_t i = 0; i < w->head.n_sequences; i++)
        if (seq[i].id_bytes == len &&
            (len == 0 || memcmp(w->section[KVFILE_TEXT].data + seq[i].id, id, len) == 0))
            return true;
    return false;
}

/* Appends a section, 64-byte aligned, to `tables`, and says in *place where it is in the file. */
static int add_section(const struct kvwriter *w, struct buf *tables, const struct buf *section,
                       struct kvfile_section *place, struct err *err)
{
    static const char zeros[64];
    *place = (struct kvfile_section){w->head.tables_at + tables->len, section->len};
    return buf_add(tables, section->data, section->len, err) < 0 ||
                   buf_add(tables, zeros, round_up(tables->len, 64) - tables->len, err) < 0
               ? -1
               : 0;
}

static int collect_tables(struct kvwriter *w, struct buf *tables, struct err *err)
{
    for (size_t i = 0; i < KVFILE_SECTIONS; i++)
        if (add_section(w, tables, &w->section[i], &w->head.section[i], err) < 0)
            return -1;
    if (w->head.version < KVFILE_VERSION_SIZES)
        return 0;
    struct buf sizes = {0};
    int rc = 0;
    for (size_t l = 0; l < w->head.layers && rc == 0; l++)
        rc = buf_add(&sizes, sizes_of(w, l),
                     w->head.version >= KVFILE_VERSION_TYPES ? sizeof(struct kvfile_sizes)
                                                             : offsetof(struct kvfile_sizes, type),
                     err);
    if (rc == 0)
        rc = add_section(w, tables, &sizes, &w->head.sizes, err);
    buf_release(&sizes);
    return rc;
}

int kvwriter_commit(struct kvwriter *w, struct err *err)
{
    unsigned char page[KVFILE_ALIGN] = {0};
    struct buf tables = {0};
    int rc = -1;
    if (!w->head.n_sequences) {
        err_set(err, "%s: nothing to save: no sequence has KV entries", w->out.path);
        goto out;
    }
    w->head.tables_at = w->out.written;
    if (collect_tables(w, &tables, err) < 0)
        goto out;
    if (tables.len > KVFILE_MAX_TABLES) {
        err_set(err,
                "%s: the tables of %llu sequences take %zu bytes, the limit is %d; save fewer "
                "sequences per snapshot",
                w->out.path, (unsigned long long)w->head.n_sequences, tables.len, KVFILE_MAX_TABLES);
        goto out;
    }
    w->head.tables_bytes = tables.len;
    w->head.file_bytes = w->head.tables_at + tables.len;
    memcpy(page, &w->head, sizeof w->head);
    w->head.hash = kvfile_hash(page, tables.data, tables.len);
    memcpy(page, &w->head, sizeof w->head);
    if (outfile_write(&w->out, tables.data, tables.len, err) == 0 &&
        outfile_write_at(&w->out, 0, page, sizeof page, err) == 0)
        rc = outfile_commit(&w->out, err);
out:
    buf_release(&tables);
    kvwriter_abort(w);
    return rc;
}
