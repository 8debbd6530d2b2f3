/* story.kv: a snapshot of the cache of one or more sequences. bmc-kv(5) describes it byte by byte. This file knows
 * tables, blocks of rows and hashes; what a sequence does with them is the decode room's business.
 *
 *   0           head, one page
 *   4096        blocks of rows, each at a multiple of 4096: for every sequence, for every layer, K and then V
 *   tables_at   sequences, tokens, text, blocks: the tables
 *   file_bytes  end
 *
 * The tables come last, so that sequences can be written one after the other as they end. */
#ifndef BMC_KVFILE_H
#define BMC_KVFILE_H

#include "base/dtype.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"

enum {
    KVFILE_VERSION = 2,
    KVFILE_VERSION_WINDOW = 3, /* some sequence is a window: `first` and `least` are not all 0 */
    KVFILE_ALIGN = 4096,
    KVFILE_MAX_TABLES = 256 << 20 /* they are hashed whenever the file is opened */
};

#define KVFILE_MAGIC "BMCKVSNP"

enum { KVFILE_SEQUENCES, KVFILE_TOKENS, KVFILE_TEXT, KVFILE_BLOCKS, KVFILE_SECTIONS };

struct kvfile_section {
    uint64_t offset, bytes;
};

/* The head, 512 bytes, little-endian; the rest of its page is zero. */
struct kvfile_head {
    char magic[8];
    uint32_t version, reserved;
    uint64_t file_bytes;
    uint64_t tables_at, tables_bytes; /* tables_at is a multiple of KVFILE_ALIGN */
    uint64_t n_sequences;
    uint64_t spare;
    uint64_t context;      /* N of the writer: for information */
    struct hash hash;      /* of the first page with this field zero, then the tables */
    struct hash model_id;  /* the model that the rows belong to */
    struct hash tokenizer; /* of its tokenizer's tables: to tell what differs */
    uint32_t dtype, layout;
    uint64_t layers, kv_heads, head_dim;
    struct kvfile_section section[KVFILE_SECTIONS];
    char policy[64];             /* that wrote it, ended by 0: for information */
    char isa[16], precision[16]; /* kernels that computed its last rows, the same; "" in older files */
    uint64_t more[20];
};

/* One sequence, 192 bytes. */
struct kvfile_seq {
    uint64_t token, n_tokens; /* its ids in the tokens section; n_tokens >= n_rows */
    uint64_t n_rows;          /* tokens from `first` on that have a row; those behind are pending */
    uint64_t cap;      /* stored rows per head, a multiple of TILE_ROWS; those behind n_rows are zero */
    uint64_t n_prompt; /* leading tokens that were given, not generated: for information */
    uint64_t seed, stream; /* key of the random numbers; their position is n_tokens */
    double temp, top_p, min_p, repeat_penalty;
    uint64_t top_k, repeat_last_n; /* all tokens: 2^64 - 1 */
    uint64_t id, id_bytes;         /* its name, JSON, in the text section; 0 bytes: none */
    double presence_penalty, frequency_penalty;
    uint64_t first; /* leading tokens whose rows were dropped */
    uint64_t least; /* rows that a reader must take at least: fewer lack some before them */
    uint64_t spare[5];
};

/* One block [KV head][cap][d], 64 bytes. */
struct kvfile_block {
    uint64_t offset, bytes;
    struct hash hash; /* see base/hash_pieces.h */
    uint64_t spare[2];
};

/* An open snapshot; its tables are used in place. */
struct kvfile {
    struct file_map map;
    int fd; /* -1: parsed from memory */
    const struct kvfile_head *head;
    const struct kvfile_seq *seq;
    size_t n_seqs;
    const uint32_t *token;
    const char *text;
    const struct kvfile_block *block;
};

/* Checks head and tables of `size` bytes (at a multiple of 8) of a file called `name`: version, hash, sections, blocks
 * of the size that the shape needs, inside the file, in order. Rows are not read. */
int kvfile_parse(struct kvfile *file, const void *data, size_t size, const char *name,
                 struct err *err) MUST_USE;
int kvfile_open(struct kvfile *file, const char *path, struct err *err) MUST_USE;
void kvfile_close(struct kvfile *file);

/* The block of K or V of a layer of a sequence. */
const struct kvfile_block *kvfile_block_of(const struct kvfile *file, size_t seq, size_t layer, bool v);

/* A sequence's rows, mapped for writing: the file stays as it is, and pages that are not written stay shared. */
struct kvfile_rows {
    char *data; /* of the sequence's first block; NULL: not mapped */
    size_t bytes;
    size_t offset; /* of data in the file */
};

int kvfile_map_rows(const struct kvfile *file, size_t seq, struct kvfile_rows *rows, const char *name,
                    struct err *err) MUST_USE;
void kvfile_unmap_rows(struct kvfile_rows *rows);

/* Called with the bytes hashed so far and in all; may be NULL. */
typedef void kvfile_progress(void *arg, size_t done, size_t total);

/* Hashes every block, on all threads, and names the first damaged one; then checks that the rows of tokens are finite and
 * that all behind them, and between blocks, is zero. */
int kvfile_verify(const struct kvfile *file, const char *path, kvfile_progress *progress, void *arg,
                  struct err *err) MUST_USE;

/* ---- writing ---- */

struct kvwriter;

/* What the head says: version, model_id, tokenizer, context, dtype, layout, layers, kv_heads, head_dim, policy, isa and precision of
 * `about`. The output must be a snapshot, an empty file, or a name that is free; a new one can be read by nobody else,
 * for it has all that was said. */
int kvwriter_open(struct kvwriter **writer, const char *path, const struct kvfile_head *about,
                  struct err *err) MUST_USE;

/* What is written of a sequence. `entry` gives n_tokens, n_rows, cap, n_prompt, and what belongs to sampling. `read`
 * copies the n_rows rows of one head to `rows`. */
struct kvwriter_seq {
    struct kvfile_seq entry;
    const uint32_t *token;
    const char *id; /* JSON, or NULL */
    int (*read)(void *arg, size_t layer, bool v, size_t head, void *rows, struct err *err);
    void *arg;
};

int kvwriter_add(struct kvwriter *writer, const struct kvwriter_seq *seq, struct err *err) MUST_USE;

/* True when a sequence of that name, NULL for none, was added. */
bool kvwriter_has(const struct kvwriter *writer, const char *id);

/* Writes the tables and gives the file its name. The writer is freed, and nothing stays behind on error. */
int kvwriter_commit(struct kvwriter *writer, struct err *err) MUST_USE;

/* Drops an unfinished file; NULL is accepted. */
void kvwriter_abort(struct kvwriter *writer);

/* The hash in the head. */
struct hash kvfile_hash(const void *page, const void *tables, size_t tables_bytes);

#endif
