/* KV snapshot: the saved KV cache of one or more sequences; bmc-kv(5) specifies it. This interface
 * handles tables, blocks of KV entries and hashes; lib/decode saves and loads sequences.
 *
 *    0           header, one page
 *    4096        blocks of KV entries, 4096-byte aligned: for every sequence, for every layer, K then V,
 *                or K only if V is a part of it
 *    tables_at   tables: sequences, tokens, text, blocks, and where layers differ their sizes
 *    file_bytes  end
 *
 * The tables come last so that sequences can be written as they finish. */
#pragma once

#include "quant/dtype.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "format/sampling.h"

enum {
    KVFILE_VERSION = 2,
    /* some sequence has a rolling KV cache: a nonzero `first` or `least` in struct kvfile_seq */
    KVFILE_VERSION_WINDOW = 3,
    /* written by older programs: the model has recurrent state: a nonzero state_bytes in struct kvfile_head. In all
     * versions before 10 its sequences have KVFILE_OLD_STATES states */
    KVFILE_VERSION_STATE = 4,
    KVFILE_OLD_STATES = 3,
    /* V is a part of K: a nonzero v_dim in struct kvfile_head; `first` and `least` are allowed */
    KVFILE_VERSION_LATENT = 5,
    /* written by older programs: layers of two sizes, those of the second behind all others: nonzero members second_* */
    KVFILE_VERSION_TWO_SIZES = 6,
    /* layers differ in the sizes of their KV heads, which are a table; all else is allowed */
    KVFILE_VERSION_SIZES = 7,
    /* K and V, or layers, differ in their types: the table has these, too */
    KVFILE_VERSION_TYPES = 8,
    /* keys are multiplied by the scales of the model (model/key_scales.h); the table as in version 8 */
    KVFILE_VERSION_SCALED = 9,
    /* the model has recurrent state, of which each sequence has any number; else as version 9, scales included */
    KVFILE_VERSION_STATES = 10,
    KVFILE_ALIGN = 4096,
    KVFILE_MAX_TABLES = 256 << 20 /* maximum bytes; limits the time to hash them at open */
};

#define KVFILE_MAGIC "BMCKVSNP"

enum { KVFILE_SEQUENCES, KVFILE_TOKENS, KVFILE_TEXT, KVFILE_BLOCKS, KVFILE_SECTIONS };

struct kvfile_section {
    uint64_t offset, bytes;
};

/* Sizes of the KV heads of a layer, and types of K and V. */
struct kvfile_sizes {
    uint64_t kv_heads, head_dim;
    uint64_t v_dim;   /* V is the first v_dim elements of K, and not stored; 0: V is stored */
    uint32_t type[2]; /* both the same where V is not stored; KVFILE_VERSION_SIZES: missing */
};

/* The header, 512 bytes, little-endian; the rest of its page is zero. */
struct kvfile_head {
    char magic[8];
    uint32_t version, reserved;
    uint64_t file_bytes;
    uint64_t tables_at, tables_bytes; /* tables_at is KVFILE_ALIGN-aligned */
    uint64_t n_sequences;
    uint64_t spare;
    uint64_t context;       /* maximum sequence length of the writer, informative */
    struct hash hash;       /* of the first page with this field zeroed, then the tables */
    struct hash model_id;   /* the model that computed the KV entries */
    struct hash tokenizer;  /* hash of that model's tokenizer tables, to explain mismatches */
    uint32_t dtype, layout; /* type of K and V in all layers; if they differ, of K in the first */
    uint64_t layers, kv_heads, head_dim; /* of all layers; if they differ, those of the first */
    struct kvfile_section section[KVFILE_SECTIONS];
    char policy[64]; /* cache policy of the writer, informative */
    /* kernel set and precision that computed the last KV entries, informative; "" in older files */
    char isa[16], precision[16];
    uint64_t state_bytes; /* of a recurrent state; 0: the model has none */
    uint64_t v_dim;       /* kvfile_sizes.v_dim of all layers */
    /* KVFILE_VERSION_TWO_SIZES: layers of the second sizes, behind `layers` others; else 0 */
    uint64_t second_layers, second_kv_heads, second_head_dim;
    /* kv_scales.id of the scales that K and V were quantised with (kv/kv_scales.h); zero: each entry has its own */
    struct hash scales;
    /* KVFILE_VERSION_SIZES and later: struct kvfile_sizes of each layer; else 0 */
    struct kvfile_section sizes;
    uint64_t more[9];
};

/* Entry of the table of sequences, 192 bytes. */
struct kvfile_seq {
    uint64_t token, n_tokens; /* range in the tokens section; n_tokens >= n_rows */
    /* number of KV entries: those of n_rows tokens from `first` on; later tokens have none yet */
    uint64_t n_rows;
    /* stored KV entries per head, a multiple of TILE_ROWS; those from n_rows on are zero */
    uint64_t cap;
    uint64_t n_prompt;     /* leading prompt tokens, informative */
    uint64_t seed, stream; /* key of the sampler's RNG; its counter is n_tokens */
    double temp, top_p, min_p, repeat_penalty;
    uint64_t top_k, repeat_last_n; /* repeat_last_n 2^64 - 1: all tokens */
    uint64_t id, id_bytes;         /* its name: JSON in the text section; 0 bytes: none */
    double presence_penalty, frequency_penalty;
    uint64_t first; /* number of leading tokens whose KV entries were evicted */
    /* minimum number of KV entries to load; a shorter prefix would need evicted ones */
    uint64_t least;
    union {
        /* before version 10: numbers of tokens before its recurrent states, 0: no state; see kvfile_state_at() */
        uint64_t state_at[KVFILE_OLD_STATES];
        struct {
            uint64_t block, n_states; /* version 10: index of its first block, and its states */
        };
    };
    /* its sampling parameters by name: JSON in the text section; 0 bytes: those above only */
    uint64_t settings, settings_bytes;
};

/* Table entry, 64 bytes, of a block: K or V of one layer and sequence, [KV head][cap][head_dim]; or, if the
 * model has recurrent state, a state of a sequence (lib/kv/state/state.h), empty where state_at is 0. Of
 * each sequence the blocks of all layers come first, then its states. */
struct kvfile_block {
    uint64_t offset, bytes;
    struct hash hash; /* tree hash (base/hash.h) of the block */
    uint64_t tokens;  /* version 10: number of tokens before a state; else 0 */
    uint64_t spare;
};

/* An open snapshot; tables are used in place. */
struct kvfile {
    struct file_map map;
    int fd; /* -1: parsed from memory */
    const struct kvfile_head *head;
    const struct kvfile_seq *seq;
    size_t n_seqs;
    const uint32_t *token;
    const char *text;
    const struct kvfile_block *block;
    const char *sizes;   /* the table of sizes; NULL: kvfile_sizes_of() has them from the header */
    size_t layer_blocks; /* of a sequence, without recurrent states */
};

/* Validates header and tables of `size` bytes (8-byte aligned) of a file called `name`: version,
 * hash, sections, and that blocks have the size that the shape implies, are in order and inside
 * the file. KV entries are not read. */
int kvfile_parse(struct kvfile *file, const void *data, size_t size, const char *name,
                 struct err *err) MUST_USE;
int kvfile_open(struct kvfile *file, const char *path, struct err *err) MUST_USE;
void kvfile_close(struct kvfile *file);

/* Reads the sampling parameters of a sequence; those that the file lacks stay as they are: see
 * sampling_read(). After an error options->dry_text is NULL. */
int kvfile_sampling(const struct kvfile *file, size_t seq, struct sampler_options *options,
                    const char *name, struct err *err) MUST_USE;

/* Where V is not stored, its block is K's. */
const struct kvfile_block *kvfile_block_of(const struct kvfile *file, size_t seq, size_t layer, bool v);

/* Number of all layers, and their sizes. */
static inline size_t kvfile_layers(const struct kvfile_head *head)
{
    return (size_t)(head->layers + head->second_layers);
}
struct kvfile_sizes kvfile_sizes_of(const struct kvfile *file, size_t layer);

/* Bytes of an entry of K, or of V if `v`, in one head of a layer. */
static inline size_t kvfile_row_bytes(const struct kvfile_sizes *sizes, bool v)
{
    return dtype_row_bytes((enum dtype)sizes->type[v], (size_t)sizes->head_dim);
}

/* Blocks of a layer in a sequence: K and V, or K only. */
static inline size_t kvfile_matrices(const struct kvfile_sizes *sizes) { return sizes->v_dim ? 1 : 2; }

/* The number of blocks of recurrent states of a sequence, the number of tokens before one of them, and the state,
 * state_bytes bytes. Positions ascend; the last is that behind all KV entries. In older files the first ones may be 0,
 * which have no state. */
size_t kvfile_states(const struct kvfile *file, size_t seq);
size_t kvfile_state_at(const struct kvfile *file, size_t seq, size_t index);
const void *kvfile_state(const struct kvfile *file, size_t seq, size_t index);

/* A copy-on-write mapping of a sequence's KV entries. */
struct kvfile_rows {
    char *data; /* begins with K of layer 0; NULL: not mapped */
    size_t bytes;
    size_t offset; /* file offset of `data` */
};

int kvfile_map_rows(const struct kvfile *file, size_t seq, struct kvfile_rows *rows, const char *name,
                    struct err *err) MUST_USE;
void kvfile_unmap_rows(struct kvfile_rows *rows);

/* Called with the bytes hashed so far and the total; may be NULL. */
typedef void kvfile_progress(void *arg, size_t done, size_t total);

/* Verifies every block's hash, that KV entries are finite and that unused entries and gaps are
 * zero, multi-threaded; the error names the first damaged block. */
int kvfile_verify(const struct kvfile *file, const char *path, kvfile_progress *progress, void *arg,
                  struct err *err) MUST_USE;

/* ---- writing ---- */

struct kvwriter;

/* Starts a snapshot. `about` gives model_id, tokenizer, context, layout, layers, state_bytes, policy, isa and
 * precision, sizes[layers] the sizes and types of layers. An existing file at `path` must be empty or a
 * snapshot; a new one is readable by its owner only. */
int kvwriter_open(struct kvwriter **writer, const char *path, const struct kvfile_head *about,
                  const struct kvfile_sizes *sizes, struct err *err) MUST_USE;

/* A sequence to write. `entry` gives n_tokens, n_rows, cap, n_prompt, n_states and the sampler's state.
 * `read` copies n_rows entries of K, or of V if `v`, of one layer and KV head to `rows`; `read_state` the recurrent
 * state after a number of tokens. */
struct kvwriter_seq {
    struct kvfile_seq entry;
    const uint32_t *token;
    const char *id;             /* name of the sequence as JSON, or NULL */
    const struct buf *settings; /* JSON */
    const size_t *state_at;     /* [n_states], ascending */
    int (*read)(void *arg, size_t layer, bool v, size_t head, void *rows, struct err *err);
    void (*read_state)(void *arg, size_t tokens, void *state);
    void *arg;
};

int kvwriter_add(struct kvwriter *writer, const struct kvwriter_seq *seq, struct err *err) MUST_USE;

/* True if a sequence with name `id` (NULL: without a name) was added. */
bool kvwriter_has(const struct kvwriter *writer, const char *id);

/* Writes the tables and renames the file to its path. The writer is freed; on error nothing is
 * left behind. */
int kvwriter_commit(struct kvwriter *writer, struct err *err) MUST_USE;

/* Discards an unfinished file; NULL is accepted. */
void kvwriter_abort(struct kvwriter *writer);

/* Computes the hash in the header, which covers the first page and the tables. */
struct hash kvfile_hash(const void *page, const void *tables, size_t tables_bytes);
