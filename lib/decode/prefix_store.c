/* The prefix cache on disk: keys, loading and storing of a session's KV entries. */
#include "decode/prefix_store.h"

#include "base/mem.h"
#include "decode/snapshot.h"

enum { TOKENS = KVBLOCK_TOKENS };

struct prefix_store {
    struct kvblock_folder *folder;
    struct hash version; /* of the program */
    bool bound;
    struct hash base;           /* the settings: part of the parent of first blocks */
    struct kvblock_head head;   /* of all blocks, without key and tokens */
    struct kvblock_head *block; /* the head, and room for KV entries: the block being read or written */
    struct kvfile_sizes *sizes; /* [layers] */
    struct kv_layer_rows
        *layer; /* [layers]: the block's KV entries, while the backend has adopted it */
};

int prefix_store_open(struct prefix_store **out, const char *path, size_t size, const char *version,
                      struct kvblock_warn warn, struct err *err)
{
    struct prefix_store *s = *out = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(err, "a prefix cache");
    s->version = hash_of(version, strlen(version));
    if (kvblock_folder_open(&s->folder, path, size, warn, err) == 0)
        return 0;
    prefix_store_close(s);
    *out = NULL;
    return -1;
}

static size_t block_bytes(const struct prefix_store *s)
{
    return sizeof *s->block + (size_t)s->head.bytes;
}

void prefix_store_close(struct prefix_store *s)
{
    if (!s)
        return;
    kvblock_folder_close(s->folder);
    free(s->block);
    free(s->sizes);
    free(s->layer);
    free(s);
}

static void add_word(struct hasher *hasher, const char *word)
{
    hasher_add(hasher, word, strlen(word) + 1);
}

/* Everything except tokens and adapters that affects the bits of KV entries. The configuration, with its RoPE
 * scaling, is part of model_id. */
static struct hash settings_hash(const struct prefix_store *s, const struct session *session)
{
    const struct session_options *o = session_options(session);
    const struct kv_setup *kv = kv_setup(session_kv(session));
    struct hasher hasher;
    hasher_init(&hasher);
    add_word(&hasher, "bmc prefix cache 3");
    hasher_add(&hasher, &session_model(session)->file.model_id, sizeof(struct hash));
    add_word(&hasher, precision_kernels(o->cpu.kernels, o->cpu.precision));
    add_word(&hasher, precision_name(o->cpu.precision));
    add_word(&hasher, o->cpu.attn->foreign_sums ? o->cpu.attn->name : "");
    hasher_add(&hasher, &s->version, sizeof s->version);
    hasher_add(&hasher, &s->head.dtype, 5 * sizeof s->head.dtype); /* the shape, too */
    if (session_model(session)->key_gains)
        add_word(&hasher, "scaled keys");
    if (kv_has_shared_scales(kv))
        hasher_add(&hasher, &kv->scales, sizeof kv->scales);
    if (s->head.version == KVBLOCK_VERSION_SIZES)
        hasher_add(&hasher, &s->head.sizes, sizeof s->head.sizes);
    return hasher_result(&hasher);
}

static int check_session(const struct session *session, struct err *err)
{
    const struct session_options *o = session_options(session);
    if (o->leader || session_model(session)->pipeline_parallel)
        return err_set(err, "the prefix cache needs the whole model in each process: use --parallelism "
                            "data");
    if (o->kv.offload.streaming)
        return err_set(err, "streaming heads drop KV entries: the prefix cache is not used");
    if (kv_state_bytes(session_kv(session)))
        return err_set(err,
                       "the model has recurrent layers, whose state is not stored: the prefix cache "
                       "is not used");
    if (!snapshot_fits(session, NULL))
        return err_set(err,
                       "beyond %zu tokens this model's rotary frequencies depend on the sequence "
                       "length: the prefix cache is used up to -c %zu only",
                       session_model(session)->config.rope->original,
                       session_model(session)->config.rope->original);
    return 0;
}

int prefix_store_bind(struct prefix_store *s, const struct session *session, struct err *err)
{
    const struct kv_shape *shape = &kv_setup(session_kv(session))->shape;
    if (check_session(session, err) < 0)
        return -1;
    s->sizes = snapshot_sizes(shape);
    if (!s->sizes)
        return err_no_memory(err, "blocks of the prefix cache");
    if (kvblock_shape(&s->head, s->sizes, shape->layers, err) < 0)
        return -1;
    s->base = settings_hash(s, session);
    s->block = mem_zalloc(1, block_bytes(s));
    s->layer = mem_alloc(shape->layers, sizeof *s->layer);
    if (!s->block || !s->layer)
        return err_no_memory(err, "blocks of the prefix cache");
    *s->block = s->head;
    s->bound = true;
    return 0;
}

struct prefix_chain prefix_store_begin(const struct prefix_store *s, const struct model *model,
                                       const float *lora_factor)
{
    const struct hash entries = model_entries_id(model, lora_factor);
    struct hasher hasher;
    hasher_init(&hasher);
    hasher_add(&hasher, &s->base, sizeof s->base);
    hasher_add(&hasher, &entries, sizeof entries);
    return (struct prefix_chain){.key = hasher_result(&hasher)};
}

/* The key of the block that follows the chain. */
static struct hash next_key(const struct prefix_chain *chain, const uint32_t *token)
{
    return kvblock_key(&chain->key, token + chain->blocks * TOKENS);
}

static void advance(struct prefix_chain *chain, const struct hash *key)
{
    chain->key = *key;
    chain->blocks++;
}

struct hash prefix_store_key(const struct prefix_chain *from, const uint32_t *token, size_t index)
{
    struct prefix_chain chain = *from;
    struct hash key = next_key(&chain, token);
    while (chain.blocks < index) {
        advance(&chain, &key);
        key = next_key(&chain, token);
    }
    return key;
}

bool prefix_store_missing(const struct prefix_store *s, struct prefix_chain chain,
                          const uint32_t *token, size_t n, struct hash *key)
{
    if (!s->bound)
        return false;
    while ((chain.blocks + 1) * TOKENS <= n) {
        *key = next_key(&chain, token);
        if (!kvblock_folder_has(s->folder, key))
            return true;
        advance(&chain, key);
    }
    return false;
}

static struct kvblock_head head_of(const struct prefix_store *s, const struct hash *key,
                                   const uint32_t *token)
{
    struct kvblock_head head = s->head;
    head.key = *key;
    memcpy(head.token, token, sizeof head.token);
    return head;
}

/* Appends the block's entries [first, first + rows) to a sequence that will have `expected` more. */
static int extend(struct prefix_store *s, struct session *session, size_t seq, size_t first,
                  size_t rows, size_t expected, struct err *err)
{
    const struct backend_memory *memory = kv_setup(session_kv(session))->memory;
    const struct device_addr at = memory->adopt(s->block, block_bytes(s));
    if (addr_is_null(at))
        return err_no_memory(err, "a block of the prefix cache");
    for (size_t l = 0; l < s->head.layers; l++) {
        s->layer[l].k = addr_add(at, kvblock_rows_at(s->sizes, l, false));
        s->layer[l].v = addr_add(at, kvblock_rows_at(s->sizes, l, true));
        s->layer[l].types = (struct kv_types){s->sizes[l].type[KV_K], s->sizes[l].type[KV_V]};
    }
    const int rc = session_extend(session, seq, s->layer, first, rows, TOKENS, expected, err);
    memory->disown(at, block_bytes(s));
    return rc;
}

int prefix_store_load(struct prefix_store *s, struct session *session, size_t seq,
                      const uint32_t *token, size_t n, size_t most, struct prefix_chain *chain,
                      size_t *dropped, struct err *err)
{
    *dropped = 0;
    most = size_min(most, kv_untrimmed_limit(session_kv(session)));
    while (s->bound && (chain->blocks + 1) * TOKENS <= n) {
        const size_t begin = chain->blocks * TOKENS, end = size_min(begin + TOKENS, most);
        const size_t have = session_length(session, seq);
        const struct hash key = next_key(chain, token);
        const struct kvblock_head want = head_of(s, &key, token + begin);
        if (begin >= most || (have >= end && !kvblock_folder_has(s->folder, &key)))
            break;
        if (have < end) {
            const enum kvblock_found found =
                kvblock_folder_get(s->folder, &want, chain->blocks, s->block);
            *dropped += found == KVBLOCK_DAMAGED;
            if (found != KVBLOCK_FOUND)
                break;
            if (extend(s, session, seq, have - begin, end - have, n - have, err) < 0)
                return -1;
        }
        advance(chain, &key);
    }
    return 0;
}

static int read_block(const struct prefix_store *s, struct kv *kv, size_t seq, size_t first)
{
    struct err err;
    for (size_t l = 0; l < s->head.layers; l++)
        for (size_t m = 0; m < kvfile_matrices(&s->sizes[l]); m++)
            for (size_t h = 0; h < s->sizes[l].kv_heads; h++) {
                char *rows = (char *)s->block + kvblock_rows_at(s->sizes, l, m) +
                             h * kvblock_head_bytes(&s->sizes[l], m);
                if (kv_read_rows(kv, seq, l, m, h, first, TOKENS, rows, &err) < 0)
                    return -1;
            }
    return 0;
}

/* Stores a block unless it is there; adds its tokens to *stored. */
static bool save_block(struct prefix_store *s, struct kv *kv, size_t seq, const uint32_t *token,
                       size_t index, const struct hash *key, size_t *stored)
{
    if (kvblock_folder_has(s->folder, key))
        return true;
    *s->block = head_of(s, key, token + index * TOKENS);
    if (read_block(s, kv, seq, index * TOKENS) < 0 || !kvblock_folder_put(s->folder, s->block, index))
        return false;
    *stored += TOKENS;
    return true;
}

size_t prefix_store_save(struct prefix_store *s, struct session *session, size_t seq,
                         const uint32_t *token, size_t n, struct prefix_chain *chain)
{
    struct kv *kv = session_kv(session);
    size_t stored = 0;
    const size_t end = size_min(n, session_length(session, seq)) / TOKENS;
    if (!s->bound || session_has_foreign(session, seq) || !kv_is_untrimmed(kv, seq) ||
        end <= chain->blocks)
        return 0;
    const size_t first = chain->blocks;
    struct prefix_chain to = *chain;
    AUTO(free_auto) struct hash *key = mem_alloc(end - first, sizeof *key);
    if (!key)
        return 0;
    for (; to.blocks < end; advance(&to, &key[to.blocks - first]))
        key[to.blocks - first] = next_key(&to, token);
    /* The last one first: a process that waits for these blocks sees that they are missing until all
     * of them are there. */
    size_t i = end;
    while (i > first && save_block(s, kv, seq, token, i - 1, &key[i - 1 - first], &stored))
        i--;
    if (i == first)
        *chain = to;
    return stored;
}

void prefix_store_count(struct prefix_store *s, size_t tokens, size_t found)
{
    if (s->bound)
        kvblock_folder_count(s->folder, tokens, found);
}

bool prefix_store_claim(struct prefix_store *s, const struct hash *key)
{
    return kvblock_folder_claim(s->folder, key);
}

void prefix_store_release(struct prefix_store *s, const struct hash *key)
{
    kvblock_folder_release(s->folder, key);
}
