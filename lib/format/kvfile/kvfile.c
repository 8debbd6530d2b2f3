/* Reading KV snapshots; everything is validated before use. */
#include "quant/cache_types.h"
#include "format/kvfile/kvfile.h"

#include <unistd.h>

#include "format/detect.h"

_Static_assert(sizeof(struct kvfile_head) == 512, "the head has no padding");
_Static_assert(sizeof(struct kvfile_seq) == 192, "a sequence entry has no padding");
_Static_assert(sizeof(struct kvfile_sizes) == 32, "sizes have no padding");
_Static_assert(sizeof(struct kvfile_block) == 64, "a block entry has no padding");

struct hash kvfile_hash(const void *page, const void *tables, size_t tables_bytes)
{
    return hash_of_head(page, KVFILE_ALIGN, offsetof(struct kvfile_head, hash), tables, tables_bytes);
}

/* Checks magic, version, sizes and the hash of header and tables. */
static int check_head(const struct kvfile_head *head, size_t size, const char *name, struct err *err)
{
    char want[17], found[17];
    if (detect_refuse(head, size, KIND_SNAPSHOT, "a snapshot", name, err) < 0)
        return -1;
    if (size < sizeof head->magic || memcmp(head->magic, KVFILE_MAGIC, sizeof head->magic) != 0)
        return err_set(err,
                       "%s: not a snapshot (does not begin with \"" KVFILE_MAGIC
                       "\"); bmc-gen --save-kv writes one",
                       name);
    if (size < KVFILE_ALIGN)
        return err_set(err, "%s: has %zu bytes, its header alone has %d: it is truncated", name, size,
                       KVFILE_ALIGN);
    if (head->version < KVFILE_VERSION || head->version > KVFILE_VERSION_STATES)
        return err_set(err,
                       "%s: snapshot version %u is unsupported, this program reads versions %d to "
                       "%d; create it again from its text",
                       name, head->version, KVFILE_VERSION, KVFILE_VERSION_STATES);
    if (head->file_bytes != size)
        return err_set(err,
                       "%s: has %zu bytes, its header says %llu: %s; create it again from its text",
                       name, size, (unsigned long long)head->file_bytes,
                       size < head->file_bytes ? "truncated or damaged"
                                               : "something was appended, or it is damaged");
    if (head->tables_at % KVFILE_ALIGN || head->tables_at < KVFILE_ALIGN || head->tables_at > size ||
        head->tables_bytes != size - head->tables_at || head->tables_bytes > KVFILE_MAX_TABLES)
        return err_set(err, "%s: invalid table position %llu + %llu: the file is damaged", name,
                       (unsigned long long)head->tables_at, (unsigned long long)head->tables_bytes);
    const struct hash hash =
        kvfile_hash(head, (const unsigned char *)head + head->tables_at, (size_t)head->tables_bytes);
    hash_hex(&head->hash, 8, want);
    hash_hex(&hash, 8, found);
    if (!hash_equal(&hash, &head->hash))
        return err_set(err, "%s: header and tables have hash %s.., expected %s..: the file is damaged",
                       name, found, want);
    return 0;
}

static int check_shape(const struct kvfile_head *head, const char *name, struct err *err)
{
    enum { MOST = 1 << 20 };
    if (!cache_type_name((enum dtype)head->dtype) || head->layout != LAYOUT_ROWS)
        return err_set(err, "%s: unknown type %u or layout %u of KV entries", name, head->dtype,
                       head->layout);
    /* only a recurrent state: no layer has KV entries */
    const bool none = head->state_bytes && !head->layers && !head->kv_heads && !head->head_dim;
    if (!none && (head->layers - 1 >= MOST || head->kv_heads - 1 >= MOST || head->head_dim - 1 >= MOST))
        return err_set(err, "%s: invalid shape: %llu layers, %llu KV heads, head_dim %llu", name,
                       (unsigned long long)head->layers, (unsigned long long)head->kv_heads,
                       (unsigned long long)head->head_dim);
    const bool sizes = head->version >= KVFILE_VERSION_SIZES,
               second = head->version == KVFILE_VERSION_TWO_SIZES;
    if ((!sizes && (head->version == KVFILE_VERSION_LATENT) != (head->v_dim > 0)) ||
        head->v_dim > head->head_dim)
        return err_set(err, "%s: version %u with V of %llu of %llu elements of K: the file is damaged",
                       name, head->version, (unsigned long long)head->v_dim,
                       (unsigned long long)head->head_dim);
    if (second != (head->second_layers > 0) || head->second_layers > MOST ||
        (head->second_kv_heads == 0) == second || (head->second_head_dim == 0) == second ||
        head->second_kv_heads > MOST || head->second_head_dim > MOST)
        return err_set(
            err, "%s: version %u with %llu layers of %llu other KV heads of %llu: the file is damaged",
            name, head->version, (unsigned long long)head->second_layers,
            (unsigned long long)head->second_kv_heads, (unsigned long long)head->second_head_dim);
    if ((!sizes && (head->version == KVFILE_VERSION_STATE) != (head->state_bytes > 0)) ||
        (head->version == KVFILE_VERSION_STATES && !head->state_bytes) || head->state_bytes % 4)
        return err_set(err, "%s: version %u with a recurrent state of %llu bytes: the file is damaged",
                       name, head->version, (unsigned long long)head->state_bytes);
    if (memchr(head->policy, 0, sizeof head->policy) == NULL)
        return err_set(err, "%s: the policy name is not terminated: the file is damaged", name);
    if (!memchr(head->isa, 0, sizeof head->isa) || !memchr(head->precision, 0, sizeof head->precision))
        return err_set(err, "%s: the kernel set or precision is not terminated: the file is damaged",
                       name);
    return 0;
}

static bool in_tables(const struct kvfile_head *head, const struct kvfile_section *section,
                      size_t element)
{
    return section->offset % 64 == 0 && section->offset >= head->tables_at &&
           section->offset <= head->file_bytes &&
           section->bytes <= head->file_bytes - section->offset && section->bytes % element == 0;
}

/* Bytes of an entry of the table of sizes. */
static size_t sizes_bytes(const struct kvfile_head *head)
{
    return head->version >= KVFILE_VERSION_TYPES ? sizeof(struct kvfile_sizes)
                                                 : offsetof(struct kvfile_sizes, type);
}

/* Sets file->sizes if layers differ, and checks them. */
static int check_sizes(struct kvfile *file, const char *name, struct err *err)
{
    enum { MOST = 1 << 20 };
    const struct kvfile_head *head = file->head;
    const struct kvfile_section *section = &head->sizes;
    if (head->version < KVFILE_VERSION_SIZES && !section->bytes && !section->offset)
        return 0;
    if (head->version < KVFILE_VERSION_SIZES || !in_tables(head, section, sizes_bytes(head)) ||
        section->bytes / sizes_bytes(head) != head->layers)
        return err_set(err, "%s: the sizes of layers are outside the tables: the file is damaged",
                       name);
    file->sizes = (const char *)head + section->offset;
    for (size_t l = 0; l < head->layers; l++) {
        const struct kvfile_sizes sizes = kvfile_sizes_of(file, l);
        if (sizes.kv_heads - 1 >= MOST || sizes.head_dim - 1 >= MOST || sizes.v_dim > sizes.head_dim)
            return err_set(err,
                           "%s: invalid shape of layer %zu: %llu KV heads, head_dim %llu, V of %llu",
                           name, l, (unsigned long long)sizes.kv_heads,
                           (unsigned long long)sizes.head_dim, (unsigned long long)sizes.v_dim);
        if (!cache_type_name((enum dtype)sizes.type[0]) ||
            !cache_type_name((enum dtype)sizes.type[1]) ||
            (sizes.v_dim && sizes.type[0] != sizes.type[1]))
            return err_set(err, "%s: invalid types of layer %zu: K of type %u, V of type %u", name, l,
                           sizes.type[0], sizes.type[1]);
    }
    return 0;
}

struct kvfile_sizes kvfile_sizes_of(const struct kvfile *file, size_t layer)
{
    const struct kvfile_head *head = file->head;
    const bool second = layer >= head->layers;
    struct kvfile_sizes sizes = {.kv_heads = second ? head->second_kv_heads : head->kv_heads,
                                 .head_dim = second ? head->second_head_dim : head->head_dim,
                                 .v_dim = head->v_dim,
                                 .type = {head->dtype, head->dtype}};
    if (file->sizes)
        memcpy(&sizes, file->sizes + layer * sizes_bytes(head), sizes_bytes(head));
    return sizes;
}

/* Blocks of the layers before `layer`. */
static size_t blocks_before(const struct kvfile *file, size_t layer)
{
    if (!file->sizes)
        return file->head->v_dim ? layer : 2 * layer;
    size_t n = 0;
    for (size_t l = 0; l < layer; l++) {
        const struct kvfile_sizes sizes = kvfile_sizes_of(file, l);
        n += kvfile_matrices(&sizes);
    }
    return n;
}

/* Checks that sections are inside the tables and have the expected number of entries. */
static int check_sections(struct kvfile *file, const char *name, struct err *err)
{
    static const size_t element[KVFILE_SECTIONS] = {
        [KVFILE_SEQUENCES] = sizeof(struct kvfile_seq),
        [KVFILE_TOKENS] = sizeof(uint32_t),
        [KVFILE_TEXT] = 1,
        [KVFILE_BLOCKS] = sizeof(struct kvfile_block),
    };
    const struct kvfile_head *head = file->head;
    for (size_t i = 0; i < KVFILE_SECTIONS; i++)
        if (!in_tables(head, &head->section[i], element[i]))
            return err_set(err, "%s: section %zu is outside the tables: the file is damaged", name, i);
    if (check_sizes(file, name, err) < 0)
        return -1;
    return 0;
}

/* Index of the first block of a sequence. */
static size_t first_block(const struct kvfile *file, size_t seq)
{
    return file->head->version == KVFILE_VERSION_STATES
               ? (size_t)file->seq[seq].block
               : seq * (file->layer_blocks + kvfile_states(file, seq));
}

size_t kvfile_states(const struct kvfile *file, size_t seq)
{
    return file->head->version == KVFILE_VERSION_STATES ? (size_t)file->seq[seq].n_states
           : file->head->state_bytes                    ? KVFILE_OLD_STATES
                                                        : 0;
}

static const struct kvfile_block *state_block(const struct kvfile *file, size_t seq, size_t index)
{
    return &file->block[first_block(file, seq) + file->layer_blocks + index];
}

size_t kvfile_state_at(const struct kvfile *file, size_t seq, size_t index)
{
    return (size_t)(file->head->version == KVFILE_VERSION_STATES ? state_block(file, seq, index)->tokens
                                                                 : file->seq[seq].state_at[index]);
}

const void *kvfile_state(const struct kvfile *file, size_t seq, size_t index)
{
    return file->map.data + state_block(file, seq, index)->offset;
}

/* Checks that sequences have all blocks, one behind the other. */
static int check_counts(struct kvfile *file, const char *name, struct err *err)
{
    const struct kvfile_head *head = file->head;
    const uint64_t n = head->n_sequences;
    const size_t blocks = head->section[KVFILE_BLOCKS].bytes / sizeof(struct kvfile_block);
    bool fits = n && n == head->section[KVFILE_SEQUENCES].bytes / sizeof(struct kvfile_seq);
    size_t end = 0;
    for (size_t s = 0; fits && s < n; s++) {
        fits = first_block(file, s) == end && file->layer_blocks <= blocks - end &&
               kvfile_states(file, s) <= blocks - end - file->layer_blocks;
        end += file->layer_blocks + kvfile_states(file, s);
    }
    if (!fits || end != blocks)
        return err_set(err,
                       "%s: %llu sequences of %llu layers do not fit its tables: the file is damaged",
                       name, (unsigned long long)n, (unsigned long long)head->layers);
    file->n_seqs = (size_t)n;
    return 0;
}

static bool in_range(double x, double least, double most) { return x >= least && x <= most; }

/* True if the positions of states ascend up to the last KV entry, unused ones of older files being first. */
static bool states_in_order(const struct kvfile *file, size_t index)
{
    const struct kvfile_seq *seq = &file->seq[index];
    const bool old = file->head->version < KVFILE_VERSION_STATES;
    uint64_t before = 0;
    for (size_t i = 0; i < kvfile_states(file, index); i++) {
        const uint64_t at = kvfile_state_at(file, index, i);
        if (old && !at ? before > 0 : at <= before)
            return false;
        before = at;
    }
    return file->head->state_bytes ? before == seq->first + seq->n_rows
                                   : !seq->state_at[0] && !seq->state_at[1] && !seq->state_at[2];
}

static int check_seq(const struct kvfile *file, size_t i, const char *name, struct err *err)
{
    const struct kvfile_seq *seq = &file->seq[i];
    const uint64_t n_tokens = file->head->section[KVFILE_TOKENS].bytes / sizeof(uint32_t),
                   text = file->head->section[KVFILE_TEXT].bytes;
    if (seq->token > n_tokens || seq->n_tokens > n_tokens - seq->token || seq->id > text ||
        seq->id_bytes > text - seq->id || seq->settings > text ||
        seq->settings_bytes > text - seq->settings)
        return err_set(err, "%s: sequence %zu is outside the tables: the file is damaged", name, i);
    if (seq->n_rows == 0 || seq->n_rows > seq->n_tokens || seq->n_prompt > seq->n_tokens ||
        seq->cap < seq->n_rows || seq->cap % TILE_ROWS || seq->first > seq->n_tokens - seq->n_rows ||
        seq->least > seq->n_rows || (seq->first && seq->least != seq->n_rows) ||
        (seq->least && file->head->version == KVFILE_VERSION) || !states_in_order(file, i))
        return err_set(
            err, "%s: sequence %zu has inconsistent sizes: %llu tokens, %llu KV entries, capacity %llu",
            name, i, (unsigned long long)seq->n_tokens, (unsigned long long)seq->n_rows,
            (unsigned long long)seq->cap);
    if (!in_range(seq->temp, -1e9, 1e9) || !in_range(seq->top_p, 0, 1) || !in_range(seq->min_p, 0, 1) ||
        !in_range(seq->repeat_penalty, 1e-3, 1e3) || !in_range(seq->presence_penalty, -1e3, 1e3) ||
        !in_range(seq->frequency_penalty, -1e3, 1e3))
        return err_set(err, "%s: sequence %zu has invalid sampler settings: the file is damaged", name,
                       i);
    return 0;
}

/* Bytes of K or V of a layer; false: more than the address space. */
static bool matrix_bytes(const struct kvfile_sizes *sizes, bool v, size_t cap, size_t *bytes)
{
    return size_mul((size_t)sizes->kv_heads, kvfile_row_bytes(sizes, v), bytes) &&
           size_mul(*bytes, cap, bytes);
}

/* Checks that a block is at *end, where the one before ends, KVFILE_ALIGN-aligned, and moves *end behind it. `what`
 * is its name, and `number` its layer or number. */
static int check_block(const struct kvfile *file, size_t seq, size_t index, const char *what,
                       size_t number, size_t bytes, size_t *end, const char *name, struct err *err)
{
    const struct kvfile_block *block = &file->block[first_block(file, seq) + index];
    const size_t tables_at = (size_t)file->head->tables_at;
    if (block->offset != *end || block->bytes != bytes || bytes > tables_at - *end)
        return err_set(err,
                       "%s: %s of layer %zu of sequence %zu is at %llu + %llu, expected "
                       "%zu + %zu before %zu: the file is damaged",
                       name, what, number, seq, (unsigned long long)block->offset,
                       (unsigned long long)block->bytes, *end, bytes, tables_at);
    /* tables_at is aligned: *end does not exceed it */
    *end = round_up(*end + bytes, KVFILE_ALIGN);
    return 0;
}

static int check_seq_blocks(const struct kvfile *file, size_t seq, size_t *end, const char *name,
                            struct err *err)
{
    const struct kvfile_head *head = file->head;
    size_t index = 0, bytes;
    for (size_t l = 0; l < kvfile_layers(head); l++) {
        const struct kvfile_sizes sizes = kvfile_sizes_of(file, l);
        for (size_t m = 0; m < kvfile_matrices(&sizes); m++) {
            if (!matrix_bytes(&sizes, m, (size_t)file->seq[seq].cap, &bytes))
                return err_set(err, "%s: sequence %zu is larger than the address space", name, seq);
            if (check_block(file, seq, index++, m ? "V" : "K", l, bytes, end, name, err) < 0)
                return -1;
        }
    }
    for (size_t i = 0; i < kvfile_states(file, seq); i++) {
        bytes = kvfile_state_at(file, seq, i) ? (size_t)head->state_bytes : 0;
        if (check_block(file, seq, index++, "the state", i, bytes, end, name, err) < 0)
            return -1;
    }
    return 0;
}

/* Checks that the blocks of K and V follow each other from the second page up to the tables, each
 * KVFILE_ALIGN-aligned. */
static int check_blocks(const struct kvfile *file, const char *name, struct err *err)
{
    size_t end = KVFILE_ALIGN;
    for (size_t s = 0; s < file->n_seqs; s++)
        if (check_seq_blocks(file, s, &end, name, err) < 0)
            return -1;
    if (end != file->head->tables_at)
        return err_set(err, "%s: blocks end at byte %zu, but tables begin at %llu", name, end,
                       (unsigned long long)file->head->tables_at);
    return 0;
}

int kvfile_parse(struct kvfile *file, const void *data, size_t size, const char *name, struct err *err)
{
    const struct kvfile_head *head = data;
    const unsigned char *bytes = data;
    *file = (struct kvfile){.fd = -1, .head = head};
    if (check_head(head, size, name, err) < 0 || check_shape(head, name, err) < 0 ||
        check_sections(file, name, err) < 0)
        return -1;
    file->seq = (const void *)(bytes + head->section[KVFILE_SEQUENCES].offset);
    file->token = (const void *)(bytes + head->section[KVFILE_TOKENS].offset);
    file->text = (const char *)bytes + head->section[KVFILE_TEXT].offset;
    file->block = (const void *)(bytes + head->section[KVFILE_BLOCKS].offset);
    file->layer_blocks = blocks_before(file, kvfile_layers(head));
    if (check_counts(file, name, err) < 0)
        return -1;
    for (size_t i = 0; i < file->n_seqs; i++)
        if (check_seq(file, i, name, err) < 0)
            return -1;
    return check_blocks(file, name, err);
}

int kvfile_open(struct kvfile *file, const char *path, struct err *err)
{
    struct file_map map;
    int fd;
    *file = (struct kvfile){.fd = -1};
    if (strcmp(path, "-") == 0)
        return err_set(
            err, "-: snapshots are memory-mapped and cannot be read from a pipe; give a file name");
    if (file_map_open(&map, path, &fd, err) < 0)
        return -1;
    if (kvfile_parse(file, map.data, map.size, path, err) < 0) {
        file_unmap(&map);
        close(fd);
        *file = (struct kvfile){.fd = -1};
        return -1;
    }
    file->map = map;
    file->fd = fd;
    return 0;
}

void kvfile_close(struct kvfile *file)
{
    file_unmap(&file->map);
    if (file->head && file->fd >= 0)
        close(file->fd);
    *file = (struct kvfile){.fd = -1};
}

/* Reads the parameters that files without names have. */
static void read_unnamed(const struct kvfile_seq *seq, struct sampler_options *options)
{
    options->temp = seq->temp;
    options->top_k = (size_t)seq->top_k;
    options->top_p = seq->top_p;
    options->min_p = seq->min_p;
    options->repeat_penalty = seq->repeat_penalty;
    options->repeat_last_n = (size_t)seq->repeat_last_n;
    options->presence_penalty = seq->presence_penalty;
    options->frequency_penalty = seq->frequency_penalty;
}

int kvfile_sampling(const struct kvfile *file, size_t i, struct sampler_options *options,
                    const char *name, struct err *err)
{
    const struct kvfile_seq *seq = &file->seq[i];
    json_error_t why;
    read_unnamed(seq, options);
    options->dry_text = NULL;
    if (!seq->settings_bytes)
        return 0;
    json_t *object = json_load(file->text + seq->settings, (size_t)seq->settings_bytes,
                               JSON_REJECT_DUPLICATES, &why);
    const int rc = json_is_object(object) ? sampling_read(options, object, err)
                   : object || json_error_code(&why) != json_error_out_of_memory
                       ? err_set(err, "has invalid sampling parameters: the file is damaged")
                       : err_no_memory(err, "sampling parameters");
    json_decref(object);
    if (rc == 0)
        return 0;
    free((void *)(uintptr_t)options->dry_text);
    options->dry_text = NULL;
    return err_prefix(err, "%s", name);
}

const struct kvfile_block *kvfile_block_of(const struct kvfile *file, size_t seq, size_t layer, bool v)
{
    const struct kvfile_sizes sizes = kvfile_sizes_of(file, layer);
    return &file->block[first_block(file, seq) + blocks_before(file, layer) + (v && !sizes.v_dim)];
}

int kvfile_map_rows(const struct kvfile *file, size_t seq, struct kvfile_rows *rows, const char *name,
                    struct err *err)
{
    const struct kvfile_block *first = kvfile_block_of(file, seq, 0, false),
                              *last = kvfile_block_of(file, seq, kvfile_layers(file->head) - 1, true);
    rows->offset = (size_t)first->offset;
    rows->bytes = (size_t)(last->offset + last->bytes - first->offset);
    rows->data = file_map_private(file->fd, rows->offset, rows->bytes, name);
    return rows->data ? 0 : err_errno(err, "%s: cannot map %zu bytes of KV entries", name, rows->bytes);
}

void kvfile_unmap_rows(struct kvfile_rows *rows)
{
    file_unmap_private(rows->data, rows->bytes);
    *rows = (struct kvfile_rows){0};
}
