/* Saved next-token distributions of a text, which other configurations are compared with (bmc-prof quality):
 *
 *    0            head, 256 bytes
 *    256          records, one for each predicted token in order, head.record_bytes each
 *    file_bytes   end
 *
 * A record has logarithms of probabilities, with head.listed = 0 those of all tokens of the vocabulary, else those of the most
 * probable ones:
 *
 *    u32          the most probable token
 *    f32          of the token that follows in the text
 *    f32          of all that are not listed together; -INFINITY if all are
 *    u32 [listed] ids, ascending
 *    f16 [listed, or vocab], then padding to 4 bytes
 *
 * Little-endian. */
#pragma once

#include "base/file.h"
#include "base/hash.h"
#include "quant/dtype.h"

#define LOGITS_MAGIC "BMCLOGIT"
#define LOGITS_SAVED_TOP                                                                               \
    1024 /* tokens that are listed by default; a macro, so that help texts show it */

enum { LOGITS_VERSION = 1, LOGITS_NAME_SIZE = 64 };

struct logits_head {
    char magic[8];
    uint32_t version, listed;
    uint64_t file_bytes, record_bytes;
    uint64_t vocab, tokens;    /* tokens: number of records */
    uint64_t window;           /* tokens of a window of the text */
    struct hash hash;          /* of the records, then of this head with this field zeroed */
    struct hash model_id, ids; /* the model file, and the text's token ids as u32 */
    char precision[16], kv_type[LOGITS_NAME_SIZE]; /* zero-terminated */
    uint64_t spare[3];
};

struct logits_file {
    struct file_map map;
    const struct logits_head *head;
};

/* A record: where its parts are. */
struct logits_record {
    uint32_t *top;
    float *following, *rest;
    uint32_t *id; /* [n]; NULL: id i is i */
    f16 *logprob; /* [n] */
    size_t n;
};

/* The record at `data`, [head->record_bytes], which the caller reads, or fills if it is not a file's. */
struct logits_record logits_record_at(const struct logits_head *head, const void *data);

/* The hash of a file, of the head and the records behind it. */
struct hash logits_hash(const struct logits_head *head, size_t records_bytes);

/* Validates a whole file in memory: sizes and the hash. `data` is borrowed and must have the alignment of mem_alloc(); `name`
 * is used in errors. */
int logits_parse(struct logits_file *file, const void *data, size_t size, const char *name,
                 struct err *err) MUST_USE;
int logits_open(struct logits_file *file, const char *path, struct err *err) MUST_USE;
void logits_close(struct logits_file *file);

/* Reads record i < head->tokens. Fails if its numbers are no logarithms of probabilities, or its ids no ascending ones of the
 * vocabulary. */
int logits_record(struct logits_record *record, const struct logits_file *file, size_t i,
                  const char *name, struct err *err) MUST_USE;

/* A file that is written record by record; it appears when it is complete. */
struct logits_writer {
    struct logits_head head;
    struct outfile out;
    struct hasher hasher;
};

/* Opens a file with what `about` says: listed, vocab, window, model_id, ids, precision and kv_type. */
int logits_writer_open(struct logits_writer *writer, const char *path, const struct logits_head *about,
                       struct err *err) MUST_USE;
int logits_writer_add(struct logits_writer *writer, const void *records, size_t n,
                      struct err *err) MUST_USE;
int logits_writer_commit(struct logits_writer *writer, struct err *err) MUST_USE;
void logits_writer_abort(struct logits_writer *writer); /* no effect after logits_writer_commit() */
