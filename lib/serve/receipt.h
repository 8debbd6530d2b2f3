/* Receipts: what a text was generated from, its tokens, and a hash chain over the logits that they were chosen
 * from, as a line of JSON. bmc-gen(1), RECEIPTS, defines the format and says what a receipt proves.
 *
 * The chain: link 0 is the BLAKE2b-256 of the line's text before its member "tokens", which names model, settings and
 * request. Link i is the BLAKE2b-256 of link i - 1, the i-th token chosen (u32) and the Poly1305 tag, under the key of
 * link i - 1, of the logits (f32 each) that it was chosen from: a MiB takes a quarter of BLAKE2b's time. Numbers are
 * little-endian. Tags collide by chance with a probability below 2^-80; whoever knows the key can choose logits that
 * collide, but a receipt has no logits: those who verify it compute them. */
#pragma once

#include "serve/serve.h"

/* The settings of a session that logits depend on, besides the model. */
struct receipt_settings {
    char precision[16], cache_type[32];
    size_t context;
};

struct receipts;

/* Watches the requests of `serve`, whose session must be open, and calls `made` with the receipt of each that ends, before
 * its done(); those that failed have none. Fails if logits depend on more than a receipt names. */
typedef int receipt_made(void *arg, const struct gen_result *result, json_t *receipt, struct err *err);
int receipts_open(struct receipts **receipts, const struct serve *serve, receipt_made *made, void *arg,
                  struct err *err) MUST_USE;
void receipts_close(struct receipts *receipts); /* NULL is accepted */
const struct gen_watch *receipts_watch(const struct receipts *receipts);

/* ---- keys: Ed25519 ---- */

struct receipt_key {
    unsigned char seed[crypto_sign_SEEDBYTES], public[crypto_sign_PUBLICKEYBYTES],
        secret[crypto_sign_SECRETKEYBYTES];
};

/* Reads a key: 64 hexadecimal digits. To sign, they are the secret key, which nobody else may be able to read; else they
 * may also be the public key. */
int receipt_key_read(struct receipt_key *key, const char *path, bool to_sign, struct err *err) MUST_USE;

/* Appends a receipt as a line, signed unless `key` is NULL. */
int receipt_write(json_t *receipt, const struct receipt_key *key, struct buf *line,
                  struct err *err) MUST_USE;

/* ---- verification ---- */

/* The settings of the first receipt in a file's text, which the session needs. */
int receipt_first(struct receipt_settings *settings, const char *text, size_t len,
                  struct err *err) MUST_USE;

/* Calls `verdict` for receipt `number`, from 0: a sentence, and whether it is true that this model gives its tokens, from
 * these logits, and that `key`, unless NULL, has signed it. */
typedef int receipt_verdict(void *arg, uint64_t number, bool equal, const char *sentence,
                            struct err *err);

/* Verifies the receipts in a file's text, a line each, as many at a time as the session's batch has sequences. */
int receipts_verify(struct serve *serve, const char *text, size_t len, const struct receipt_key *key,
                    receipt_verdict *verdict, void *arg, struct gen_stats *stats,
                    struct err *err) MUST_USE;
