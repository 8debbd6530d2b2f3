/* Receipts are made from requests, logits and results, and signed. */
#include "serve/receipt.h"

#include <sys/stat.h>

#include "base/file.h"
#include "quant/cache_types.h"
#include "serve/receipt_json.h"

/* The request in a slot. */
struct receipt_slot {
    json_t *receipt; /* what is known so far */
    json_t *links;
    struct hash link; /* the last one */
};

struct receipts {
    struct gen_watch watch; /* watch.arg points to this struct */
    const struct serve *serve;
    receipt_made *made;
    void *made_arg;
    size_t n_slots;
    struct receipt_slot *slot;
};

static json_t *hex_json(const void *bytes, size_t n)
{
    char text[2 * crypto_sign_BYTES + 1];
    return json_string(sodium_bin2hex(text, sizeof text, bytes, n));
}

/* ---- the chain ---- */

static int add_link(struct receipt_slot *slot, struct err *err)
{
    return json_push(slot->links, hex_json(slot->link.byte, RECEIPT_LINK_BYTES), err);
}

static int begin_receipt(void *arg, size_t index, const struct gen_request *request, struct err *err)
{
    const struct receipts *r = arg;
    struct receipt_slot *slot = &r->slot[index];
    AUTO(buf_release) struct buf text = {0};
    json_decref(slot->receipt);
    json_decref(slot->links);
    *slot = (struct receipt_slot){.links = json_array()};
    slot->receipt = receipt_head(r->serve, request, err);
    if (!slot->receipt || receipt_text(slot->receipt, &text, err) < 0)
        return -1;
    slot->link = hash_of(text.data, text.len - 1); /* without the brace at its end */
    return add_link(slot, err);
}

static int chain_token(void *arg, size_t index, uint32_t id, const float *logits, struct err *err)
{
    const struct receipts *r = arg;
    struct receipt_slot *slot = &r->slot[index];
    unsigned char tag[crypto_onetimeauth_BYTES];
    struct hasher hasher;
    _Static_assert(sizeof slot->link == crypto_onetimeauth_KEYBYTES, "a link is a key");
    crypto_onetimeauth(tag, (const unsigned char *)logits,
                       session_vocab(r->serve->session) * sizeof *logits, slot->link.byte);
    hasher_init(&hasher);
    hasher_add(&hasher, &slot->link, sizeof slot->link);
    hasher_add(&hasher, &id, sizeof id);
    hasher_add(&hasher, tag, sizeof tag);
    slot->link = hasher_result(&hasher);
    return add_link(slot, err);
}

static int end_receipt(void *arg, size_t index, const struct gen_result *result, struct err *err)
{
    const struct receipts *r = arg;
    struct receipt_slot *slot = &r->slot[index];
    json_t *receipt = slot->receipt;
    if (result->finish == FINISHED_ERROR)
        return 0;
    const struct ids tokens = {.id = (uint32_t *)(uintptr_t)result->ids, .len = result->n_ids};
    return json_put(receipt, "tokens", receipt_ids(&tokens, err), err) < 0 ||
                   json_put(receipt, "finish", json_string(gen_finish_name(result->finish)), err) < 0 ||
                   json_put(receipt, "text", json_text(result->text, result->text_len), err) < 0 ||
                   json_put(receipt, "links", json_incref(slot->links), err) < 0 ||
                   json_put(receipt, "chain", hex_json(slot->link.byte, HASH_BYTES), err) < 0
               ? -1
               : r->made(r->made_arg, result, receipt, err);
}

/* Fails if logits depend on more than a receipt names. */
static int check_session(const struct session *session, struct err *err)
{
    const struct session_options *o = session_options(session);
    const struct kv_setup *setup = kv_setup(session_kv(session));
    if (o->cpu.attn->foreign_sums || o->cpu.kernels->foreign_sums ||
        o->cpu.precision == PRECISION_BF16 || o->cpu.precision == PRECISION_BF16X2 ||
        o->backend->only_f32)
        return err_set(
            err,
            "receipts need logits that are the same on every machine, which --attn blas and onednn, "
            "--isa blas, --backend opencl, and --precision bf16 and bf16x2 do not promise: leave them "
            "out");
    if (setup->window || o->recompute || o->kv.offload.streaming)
        return err_set(err, "receipts need a cache that keeps all tokens: leave --kv shift and "
                            "--retrieval-heads out");
    return strcmp(cache_types_format(&o->kv_types).text, "per layer") == 0 || o->kv.scales
               ? err_set(err,
                         "receipts name one cache type for all layers, without shared scales: give "
                         "it with --cache-type")
               : 0;
}

int receipts_open(struct receipts **out, const struct serve *serve, receipt_made *made, void *arg,
                  struct err *err)
{
    *out = NULL;
    if (check_session(serve->session, err) < 0)
        return -1;
    struct receipts *r = mem_zalloc(1, sizeof *r);
    const size_t n = session_options(serve->session)->batch;
    struct receipt_slot *slot = mem_zalloc(n, sizeof *slot);
    if (!r || !slot) {
        free(r);
        free(slot);
        return err_no_memory(err, "receipts");
    }
    *r = (struct receipts){
        {begin_receipt, chain_token, end_receipt, r}, serve, made, arg, .n_slots = n, .slot = slot};
    *out = r;
    return 0;
}

void receipts_close(struct receipts *r)
{
    for (size_t i = 0; r && i < r->n_slots; i++) {
        json_decref(r->slot[i].receipt);
        json_decref(r->slot[i].links);
    }
    if (r)
        free(r->slot);
    free(r);
}

const struct gen_watch *receipts_watch(const struct receipts *r) { return &r->watch; }

/* ---- keys and lines ---- */

int receipt_key_read(struct receipt_key *key, const char *path, bool to_sign, struct err *err)
{
    struct file_map map;
    struct stat st;
    const char *end = NULL;
    size_t n = 0;
    if (file_map(&map, path, err) < 0)
        return -1;
    const int bad = sodium_hex2bin(key->seed, sizeof key->seed, (const char *)map.data, map.size,
                                   " \t\r\n", &n, &end);
    const bool whole = !bad && n == sizeof key->seed && end == (const char *)map.data + map.size;
    file_unmap(&map);
    if (!whole)
        return err_set(err,
                       "%s: is no key, of which 64 hexadecimal digits are expected: "
                       "\"openssl rand -hex 32\" makes one",
                       path);
    if (to_sign && (stat(path, &st) < 0 || st.st_mode & (S_IRWXG | S_IRWXO)))
        return err_set(err, "%s: others than its owner may use this secret key: chmod 600 it", path);
    crypto_sign_seed_keypair(key->public, key->secret, key->seed);
    return 0;
}

int receipt_write(json_t *receipt, const struct receipt_key *key, struct buf *line, struct err *err)
{
    unsigned char signature[crypto_sign_BYTES];
    AUTO(buf_release) struct buf text = {0};
    if (key && json_put(receipt, "public_key", hex_json(key->public, sizeof key->public), err) < 0)
        return -1;
    if (receipt_text(receipt, &text, err) < 0)
        return -1;
    if (key) {
        crypto_sign_detached(signature, NULL, (unsigned char *)text.data, text.len - 1, key->secret);
        if (json_put(receipt, "signature", hex_json(signature, sizeof signature), err) < 0)
            return -1;
        buf_clear(&text);
        if (receipt_text(receipt, &text, err) < 0)
            return -1;
    }
    return buf_addf(line, err, "%s\n", buf_text(&text));
}
