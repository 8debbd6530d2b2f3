/* The prefix cache on disk: keys, loading and storing of a session's KV entries and recurrent states. */
#include "decode/prefix_store.h"

#include "base/mem.h"
#include "base/threads.h"
#include "decode/snapshot.h"

enum { TOKENS = KVBLOCK_TOKENS };

struct prefix_store {
    struct kvblock_folder *folder;
    size_t size;
    struct hash version; /* of the program */
    bool bound;
    struct hash base;         /* the settings: part of the parent of first blocks */
    struct kvblock_head head; /* of all blocks, without key and tokens */
    /* heads, and room for KV entries: the block being written, or [at_once] blocks being read */
    struct kvblock_head *block;
    size_t at_once;
    struct kvblock_head *want;  /* [at_once] */
    struct kvblock_head *state; /* as `block` of recurrent states; NULL: the model has none */
    size_t state_bytes;
    struct kvfile_sizes *sizes; /* [layers] */
    /* [at_once][layers]: KV entries of the blocks, while the backend has adopted them */
    struct kv_layer_rows *layer;
};

int prefix_store_open(struct prefix_store **out, const char *path, size_t size, const char *version,
                      struct kvblock_warn warn, struct err *err)
{
    struct prefix_store *s = *out = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(err, "a prefix cache");
    s->size = size;
    s->version = hash_of(version, strlen(version));
    if (kvblock_folder_open(&s->folder, path, size, warn, err) == 0)
        return 0;
    prefix_store_close(s);
    *out = NULL;
    return -1;
}

void prefix_store_close(struct prefix_store *s)
{
    if (!s)
        return;
    kvblock_folder_close(s->folder);
    free(s->block);
    free(s->want);
    free(s->state);
    free(s->sizes);
    free(s->layer);
    free(s);
}

size_t prefix_store_size(const struct prefix_store *s) { return s ? s->size : 0; }

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
    if (o->backend->only_f32) /* entries are its own */
        add_word(&hasher, o->backend->name);
    if (session_on_host(session)) /* of this split */
        hasher_add(&hasher, session_on_host(session),
                   session_model(session)->config.layers + SPLIT_PARTS);
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
    if (!snapshot_fits(session, NULL))
        return err_set(err,
                       "beyond %zu tokens this model's rotary frequencies depend on the sequence "
                       "length: the prefix cache is used up to -c %zu only",
                       session_model(session)->config.rope->original,
                       session_model(session)->config.rope->original);
    return 0;
}

/* Blocks are read some at a time, by all threads: about as many bytes as stay in their caches until they are copied, but one for each. */
int prefix_store_bind(struct prefix_store *s, const struct session *session, struct err *err)
{
    enum { READ_BYTES = 2 << 20 };
    const struct kv_shape *shape = &kv_setup(session_kv(session))->shape;
    if (check_session(session, err) < 0)
        return -1;
    s->sizes = snapshot_sizes(shape);
    if (!s->sizes)
        return err_no_memory(err, "blocks of the prefix cache");
    if (kvblock_shape(&s->head, s->sizes, shape->layers, err) < 0)
        return -1;
    s->base = settings_hash(s, session);
    s->state_bytes = kv_state_bytes(session_kv(session));
    s->at_once = size_min(KVBLOCK_AT_ONCE,
                          size_max((size_t)threads_max(), READ_BYTES / kvblock_stride(&s->head)));
    s->block = mem_zalloc(s->at_once, kvblock_stride(&s->head));
    s->want = mem_alloc(s->at_once, sizeof *s->want);
    s->state = s->state_bytes ? mem_alloc(1, sizeof *s->state + s->state_bytes) : NULL;
    s->layer = mem_alloc(s->at_once * shape->layers + 1, sizeof *s->layer);
    if (!s->block || !s->want || !s->layer || (s->state_bytes && !s->state))
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
    return (struct prefix_chain){.key = hasher_result(&hasher), .begun = kvblock_now()};
}

/* The key of the block that follows the chain. */
static struct hash next_key(const struct prefix_chain *chain, const uint32_t *token)
{
    return kvblock_key(&chain->key, token + chain->blocks * TOKENS);
}

/* The time of use of the block behind `blocks` blocks. */
static uint64_t used_at(const struct prefix_chain *chain, size_t blocks)
{
    return chain->begun - blocks * KVBLOCK_USE_NS;
}

static void advance(struct prefix_chain *chain, const struct hash *key)
{
    chain->key = *key;
    chain->blocks++;
}

/* True if the block that ends behind `blocks` blocks has a file. Of models without KV entries only some have, which mark
 * how much of a prefix was stored. */
static bool has_file(const struct prefix_store *s, size_t blocks)
{
    return s->head.bytes || blocks % KVBLOCK_EMPTY == 0;
}

bool prefix_store_missing(const struct prefix_store *s, struct prefix_chain chain, size_t from,
                          const uint32_t *token, size_t n, struct hash *key)
{
    if (!s->bound)
        return false;
    while ((chain.blocks + 1) * TOKENS <= n) {
        *key = next_key(&chain, token);
        if (chain.blocks >= from && has_file(s, chain.blocks + 1) &&
            !kvblock_folder_has(s->folder, key, false))
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

/* Appends entries [first, first + rows) of the n blocks to a sequence that will have `expected` more. */
static int extend(struct prefix_store *s, struct session *session, size_t seq, size_t n, size_t first,
                  size_t rows, size_t expected, struct err *err)
{
    const struct backend_memory *memory = kv_setup(session_kv(session))->memory;
    const size_t layers = s->head.layers, each = kvblock_stride(&s->head);
    const struct device_addr at = memory->adopt(s->block, n * each);
    if (addr_is_null(at))
        return err_no_memory(err, "a block of the prefix cache");
    for (size_t l = 0; l < layers; l++) {
        const size_t k = kvblock_rows_at(s->sizes, l, false), v = kvblock_rows_at(s->sizes, l, true);
        for (size_t i = 0; i < n; i++)
            s->layer[i * layers + l] = (struct kv_layer_rows){
                addr_add(at, i * each + k),
                addr_add(at, i * each + v),
                {s->sizes[l].type[KV_K], s->sizes[l].type[KV_V]},
            };
    }
    const int rc = session_extend(session, seq, s->layer, first, rows, TOKENS, expected, err);
    memory->disown(at, n * each);
    return rc;
}

/* Reads the n blocks behind the chain, whose heads are in s->want; as kvblock_folder_get(). */
static size_t get_blocks(struct prefix_store *s, const struct prefix_chain *chain, size_t n,
                         enum kvblock_found *next)
{
    size_t i = 0;
    if (s->head.bytes)
        return kvblock_folder_get(s->folder, s->want, n, used_at(chain, chain->blocks), s->block, next);
    for (*next = KVBLOCK_FOUND; i < n; i++) /* some have no file */
        if (has_file(s, chain->blocks + i + 1) &&
            !kvblock_folder_get(s->folder, &s->want[i], 1, used_at(chain, chain->blocks + i), s->block,
                                next))
            break;
    return i;
}

/* Loads the KV entries of the first `most` tokens as far as they are stored. */
static int load_entries(struct prefix_store *s, struct session *session, size_t seq,
                        const uint32_t *token, size_t n, size_t most, struct prefix_chain *chain,
                        size_t *dropped, struct err *err)
{
    struct prefix_chain to = *chain;
    const size_t last = size_min(div_up(most, TOKENS), n / TOKENS), have = session_length(session, seq);
    enum kvblock_found next = KVBLOCK_FOUND;
    for (; to.blocks < last && have >= size_min((to.blocks + 1) * TOKENS, most); *chain = to) {
        const struct hash key = next_key(&to, token);
        if (has_file(s, to.blocks + 1) && !kvblock_folder_has(s->folder, &key, false))
            return 0;
        advance(&to, &key);
    }
    while (chain->blocks < last && next == KVBLOCK_FOUND) {
        const size_t begin = chain->blocks, length = session_length(session, seq);
        size_t blocks = 0;
        for (; blocks < size_min(last - begin, s->at_once); blocks++) {
            const struct hash key = next_key(&to, token);
            s->want[blocks] = head_of(s, &key, token + to.blocks * TOKENS);
            advance(&to, &key);
        }
        blocks = get_blocks(s, chain, blocks, &next);
        *dropped += next == KVBLOCK_DAMAGED;
        if (blocks && extend(s, session, seq, blocks, length - begin * TOKENS,
                             size_min((begin + blocks) * TOKENS, most) - length, n - length, err) < 0)
            return -1;
        for (size_t i = 0; i < blocks; i++)
            advance(chain, &s->want[i].key);
    }
    return 0;
}

/* ---- recurrent states: a file beside that of the block which ends at their position ---- */

static struct kvblock_head state_head(const struct prefix_store *s, const struct hash *key,
                                      const uint32_t *token)
{
    struct kvblock_head head = head_of(s, key, token);
    head.version = KVBLOCK_VERSION_STATE;
    head.bytes = s->state_bytes;
    return head;
}

/* Advances the chain over stored blocks, up to the token `most`, and its branch to the last one with a file. Sets *at to
 * its last position with a state behind the first `have` tokens, and *head to that of the state's file; 0: there is none. */
static int find_state(const struct prefix_store *s, const uint32_t *token, size_t most, size_t have,
                      struct prefix_chain *chain, size_t *at, struct kvblock_head *head,
                      struct err *err)
{
    AUTO(free_auto) struct hash *key = mem_alloc(most / TOKENS + 1, sizeof *key);
    assert(!chain->blocks);
    *at = 0;
    if (!key)
        return err_no_memory(err, "keys of the prefix cache");
    while ((chain->blocks + 1) * TOKENS <= most) {
        const size_t i = chain->blocks;
        key[i] = next_key(chain, token);
        if (has_file(s, i + 1) && !kvblock_folder_has(s->folder, &key[i], false))
            break;
        advance(chain, &key[i]);
    }
    for (size_t i = chain->blocks; i > 0; i--) {
        const bool state = kvblock_folder_has(s->folder, &key[i - 1], true);
        if (state || has_file(s, i))
            chain->branch = size_max(chain->branch, i * TOKENS);
        if (state && i * TOKENS <= have)
            chain->state = i * TOKENS;
        else if (state)
            *at = i * TOKENS, *head = state_head(s, &key[i - 1], token + (i - 1) * TOKENS);
        if (state)
            break;
    }
    return 0;
}

/* Loads the KV entries up to the last state that is stored, and that state. Where a file turns out to be damaged, an
 * earlier state is tried. */
static int load_with_state(struct prefix_store *s, struct session *session, size_t seq,
                           const uint32_t *token, size_t n, size_t most, struct prefix_chain *chain,
                           size_t *dropped, struct err *err)
{
    const struct prefix_chain begin = *chain;
    for (;;) {
        struct prefix_chain found = begin;
        struct kvblock_head head;
        size_t at;
        if (find_state(s, token, most, session_length(session, seq), &found, &at, &head, err) < 0)
            return -1;
        chain->key = begin.key;
        chain->blocks = 0;
        chain->branch = size_max(chain->branch, found.branch);
        chain->state = found.state;
        if (!at)
            return 0;
        enum kvblock_found got;
        kvblock_folder_get(s->folder, &head, 1, used_at(chain, at / TOKENS - 1), s->state, &got);
        *dropped += got == KVBLOCK_DAMAGED;
        most = at - 1;
        if (got != KVBLOCK_FOUND)
            continue;
        if (load_entries(s, session, seq, token, n, at, chain, dropped, err) < 0)
            return -1;
        chain->state = at;
        const bool all = session_length(session, seq) == at;
        if (all && kv_state_load(session_kv(session), seq, at, s->state + 1, err) == 0)
            return 0;
        session_clear(session, seq);
        if (all)
            return -1;
    }
}

/* The positions, beside regular ones, at which the prompt is likely to be continued: its end, some tokens before it, as
 * the next question differs, and where an earlier prompt with the same beginning differed from it. */
static void mark_states(struct session *session, size_t seq, size_t most, struct prefix_chain *chain)
{
    enum { LAST_TURN = 512 };
    const bool far = session_options(session)->stored_every > LAST_TURN;
    const size_t end = most / TOKENS * TOKENS,
                 before = far && most > LAST_TURN ? round_up(most - LAST_TURN, TOKENS) : 0;
    const size_t at[] = {before, chain->branch, end};
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        chain->likely[i] = at[i] <= end ? at[i] : 0;
        if (chain->likely[i])
            session_mark(session, seq, chain->likely[i]);
    }
}

int prefix_store_load(struct prefix_store *s, struct session *session, size_t seq,
                      const uint32_t *token, size_t n, size_t most, struct prefix_chain *chain,
                      size_t *dropped, struct err *err)
{
    *dropped = 0;
    most = size_min(most, kv_untrimmed_limit(session_kv(session)));
    if (!s->bound || !n)
        return 0;
    if (!s->state)
        return load_entries(s, session, seq, token, n, most, chain, dropped, err);
    const int rc = load_with_state(s, session, seq, token, n, most, chain, dropped, err);
    mark_states(session, seq, most, chain);
    return rc;
}

static bool is_likely(const struct prefix_chain *chain, size_t position)
{
    bool likely = false;
    for (size_t i = 0; i < ARRAY_LEN(chain->likely); i++)
        likely = likely || chain->likely[i] == position;
    return likely;
}

/* True if the state at a position is worth its bytes: at regular distances, and where later prompts are likely to
 * continue unless the state before it is near. */
static bool is_due(const struct session *session, const struct prefix_chain *chain, size_t position,
                   size_t last)
{
    enum { NEAR = 256 };
    const size_t every = session_options(session)->stored_every;
    return position % every == 0 ||
           ((position == last || is_likely(chain, position)) &&
            position >= chain->state + size_min(NEAR, size_max(every / 4, TOKENS)));
}

/* Stores the sequence's states at ends of blocks [first, end) that are due, the last one too if `ended`. key[0] is that
 * of the first block. */
static bool save_states(struct prefix_store *s, const struct session *session, size_t seq,
                        const uint32_t *token, size_t first, size_t end, const struct hash *key,
                        bool ended, struct prefix_chain *chain)
{
    const struct kv *kv = session_kv(session);
    size_t last = ended ? end * TOKENS : 0;
    while (last > first * TOKENS && !kv_state_is_at(kv, seq, last))
        last -= TOKENS;
    for (size_t i = first; i < end; i++) {
        const size_t position = (i + 1) * TOKENS;
        if (!is_due(session, chain, position, last) || !kv_state_is_at(kv, seq, position))
            continue;
        if (!kvblock_folder_has(s->folder, &key[i - first], true)) {
            *s->state = state_head(s, &key[i - first], token + i * TOKENS);
            kv_state_read(kv, seq, position, s->state + 1);
            if (!kvblock_folder_put(s->folder, s->state, used_at(chain, i)))
                return false;
        }
        chain->state = position;
    }
    return true;
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
                       const struct prefix_chain *chain, size_t index, const struct hash *key,
                       size_t *stored)
{
    if (!has_file(s, index + 1) || kvblock_folder_has(s->folder, key, false))
        return true;
    *s->block = head_of(s, key, token + index * TOKENS);
    if (read_block(s, kv, seq, index * TOKENS) < 0 ||
        !kvblock_folder_put(s->folder, s->block, used_at(chain, index)))
        return false;
    *stored += s->head.bytes ? TOKENS : KVBLOCK_EMPTY * TOKENS;
    return true;
}

size_t prefix_store_save(struct prefix_store *s, struct session *session, size_t seq,
                         const uint32_t *token, size_t n, bool ended, struct prefix_chain *chain)
{
    struct kv *kv = session_kv(session);
    size_t stored = 0;
    const size_t end = size_min(n, session_length(session, seq)) / TOKENS;
    if (!s->bound || !kvblock_folder_writes(s->folder) || session_has_foreign(session, seq) ||
        !kv_is_untrimmed(kv, seq) || end <= chain->blocks)
        return 0;
    const size_t first = chain->blocks;
    struct prefix_chain to = *chain;
    AUTO(free_auto) struct hash *key = mem_alloc(end - first, sizeof *key);
    if (!key)
        return 0;
    for (; to.blocks < end; advance(&to, &key[to.blocks - first]))
        key[to.blocks - first] = next_key(&to, token);
    /* States, then blocks, the last one first: a process that waits for these blocks sees that they are missing
     * until all of them are there. */
    if (s->state && !save_states(s, session, seq, token, first, end, key, ended, chain))
        return 0;
    size_t i = end;
    while (i > first && save_block(s, kv, seq, token, chain, i - 1, &key[i - 1 - first], &stored))
        i--;
    if (i == first) {
        chain->key = to.key;
        chain->blocks = to.blocks;
    }
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
