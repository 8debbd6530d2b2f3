/* Collects tokenizer tables, and writes them as the block specified in tok_tables.h. */
#include "text/import/tok_writer.h"

#include <sodium.h>

#include "base/text_util.h"
#include "text/tokenizer/tok_tables.h"
#include "text/tokenizer/tok_steps.h"
#include "text/tokenizer/tokenizer.h"
#include "text/utf8.h"

struct tok_writer_merge {
    uint32_t left;
    struct tok_merge merge;
};

struct tok_writer_added {
    uint32_t id, flags;
    bool normalized;
    uint32_t text; /* offset in `texts` of the text to match */
    uint32_t len;
    size_t place; /* in the order in which they were added */
};

/* ---- collects tokenizer tables and writes them as the block specified in tok_tables.h ---- */

void tok_writer_release(struct tok_writer *writer)
{
    buf_release(&writer->spellings);
    buf_release(&writer->texts);
    free(writer->token);
    free(writer->merge);
    free(writer->added);
    ids_release(&writer->prefix);
    ids_release(&writer->suffix);
    free(writer->score);
    buf_release(&writer->charsmap);
    *writer = (struct tok_writer){0};
}

void tok_writer_fail(struct tok_writer *w, const char *format, ...)
{
    va_list args;
    if (w->failed)
        return;
    va_start(args, format);
    err_vset(w->err, ERR_FAILED, format, args);
    va_end(args);
    w->failed = true;
}

void tok_writer_set_token(struct tok_writer *w, int64_t id, const char *spelling, size_t len,
                          uint8_t flags)
{
    if (id < 0 || (uint64_t)id >= w->vocab_rows || id >= TOK_NONE || len > UINT32_MAX)
        tok_writer_fail(w, "%s: token \"%.*s\" has id %lld, but the model's embedding has %zu rows",
                        w->where, (int)size_min(len, 60), spelling, (long long)id, w->vocab_rows);
    while (!w->failed && w->ids <= (size_t)id)
        if (!TOK_TRY(w, mem_grow(&w->token, &w->token_cap, w->ids, sizeof w->token[0], w->err)))
            w->token[w->ids++] = (struct tok_writer_token){0};
    if (w->failed)
        return;
    struct tok_writer_token *token = &w->token[id];
    const char *there = token->flags ? w->spellings.data + token->spelling : NULL;
    if (there && (token->len != len || memcmp(there, spelling, len) != 0))
        tok_writer_fail(w, "%s: tokens \"%.*s\" and \"%.*s\" have the same id %lld", w->where,
                        (int)size_min(len, 60), spelling, (int)size_min(token->len, 60), there,
                        (long long)id);
    if (!there) {
        token->spelling = w->spellings.len;
        token->len = (uint32_t)len;
        TOK_TRY(w, buf_add(&w->spellings, spelling, len, w->err));
    }
    token->flags |= w->failed ? 0 : flags | TOK_PRESENT;
}

/* Keeps a text; returns its offset. */
static uint32_t keep_text(struct tok_writer *w, const char *text, size_t len)
{
    const size_t at = w->texts.len;
    if (len > UINT32_MAX - at)
        tok_writer_fail(w, "%s: too much text", w->where);
    TOK_TRY(w, buf_add(&w->texts, text, len, w->err));
    return (uint32_t)at;
}

void tok_writer_add_step(struct tok_writer *w, enum tok_list list, enum tok_step_kind kind,
                         uint32_t option, const struct slice *a, const struct slice *b)
{
    struct tok_step step = {.kind = kind, .option = option};
    if (w->steps[list] == TOK_MAX_STEPS)
        tok_writer_fail(w, "%s: more than %d steps of one kind", w->where, (int)TOK_MAX_STEPS);
    if ((a && a->size > TOK_MAX_PATTERN) || (b && b->size > TOK_MAX_PATTERN))
        tok_writer_fail(w, "%s: a pattern of more than %d bytes", w->where, (int)TOK_MAX_PATTERN);
    step.a = a && !w->failed ? keep_text(w, a->data, a->size) : 0;
    step.b = b && !w->failed ? keep_text(w, b->data, b->size) : 0;
    step.a_len = a ? (uint32_t)a->size : 0;
    step.b_len = b ? (uint32_t)b->size : 0;
    if (!w->failed)
        w->step[list][w->steps[list]++] = step;
}

void tok_writer_add_merge(struct tok_writer *w, uint32_t left, uint32_t right, uint32_t result,
                          size_t rank)
{
    const uint32_t ids[] = {left, right, result};
    if (w->merges >= TOK_NONE)
        tok_writer_fail(w, "%s: too many merges", w->where);
    if (TOK_TRY(w, mem_grow(&w->merge, &w->merge_cap, w->merges, sizeof w->merge[0], w->err)))
        return;
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        if (ids[i] < w->ids)
            w->token[ids[i]].joined = true;
    w->merge[w->merges++] = (struct tok_writer_merge){left, {right, (uint32_t)rank, result}};
}

/* Grows w->score to `count` ids or more; new scores are 0. */
static void need_scores(struct tok_writer *w, size_t count)
{
    for (size_t used = w->score_cap; used < count && !w->failed; used = w->score_cap)
        if (!TOK_TRY(w, mem_grow(&w->score, &w->score_cap, used, sizeof w->score[0], w->err)))
            memset(w->score + used, 0, (w->score_cap - used) * sizeof w->score[0]);
}

void tok_writer_set_score(struct tok_writer *w, size_t id, double score)
{
    need_scores(w, id + 1);
    if (!w->failed)
        w->score[id] = score;
}

void tok_writer_set_charsmap(struct tok_writer *w, struct slice base64)
{
    struct buf *map = &w->charsmap;
    const char *end;
    if (map->len)
        tok_writer_fail(w, "%s: more than one charsmap is not supported", w->where);
    if (TOK_TRY(w, buf_reserve(map, base64.size / 4 * 3 + 3, w->err)))
        return;
    if (sodium_base642bin((unsigned char *)map->data, map->cap, base64.data, base64.size, NULL,
                          &map->len, &end, sodium_base64_VARIANT_ORIGINAL) != 0 ||
        end != base64.data + base64.size || !charsmap_valid(map->data, map->len))
        tok_writer_fail(w, "%s: the charsmap of the normalizer is damaged", w->where);
}

/* ---- writing ---- */

/* The block being written; sections are appended in order. */
struct block_writer {
    struct tok_writer *writer;
    bool has_ext;
    struct tok_header header;
    struct tok_header_ext ext; /* version 2 only */
    struct buf out;
    enum tok_section next;
    struct buf bytes;     /* bytes of all tokens in id order */
    uint32_t *token_at;   /* [ids + 1]: offsets in `bytes` */
    uint8_t *token_flags; /* [ids]: enum tok_flag */
};

static void add_section(struct block_writer *block, const void *data, size_t count)
{
    static const char zeros[8];
    struct tok_writer *w = block->writer;
    size_t size;
    if (w->failed)
        return;
    if (!size_mul(count, tok_element_size[block->next], &size))
        tok_writer_fail(w, "%s: tables of the tokenizer are too large", w->where);
    struct tok_section_ref *place = block->next < SECTIONS_IN_HEADER
                                        ? &block->header.section[block->next]
                                        : &block->ext.section[block->next - SECTIONS_IN_HEADER];
    *place = (struct tok_section_ref){block->out.len, count};
    block->next++;
    TOK_TRY(w, buf_add(&block->out, data, size, w->err));
    TOK_TRY(w, buf_add(&block->out, zeros, round_up(block->out.len, 8) - block->out.len, w->err));
}

/* An array of zeros; NULL: failed. */
static void *new_table(struct tok_writer *w, size_t n, size_t size)
{
    void *table = mem_zalloc(n + 1, size);
    if (!table)
        TOK_TRY(w, err_no_memory(w->err, "tables of a tokenizer with %zu tokens", w->ids));
    return table;
}

static const char *token_bytes(const struct block_writer *block, uint32_t id)
{
    return block->bytes.data + block->token_at[id];
}

static uint32_t token_len(const struct block_writer *block, uint32_t id)
{
    return block->token_at[id + 1] - block->token_at[id];
}

/* True for bytes that occur in UTF-8: all but C0, C1 and those above F4. */
static bool utf8_has(unsigned char byte) { return byte < 0xc0 || (byte > 0xc1 && byte < 0xf5); }

/* True for an added token such as U+00FC whose spelling would decode from the byte alphabet to
 * invalid UTF-8: it is stored as spelled. */
static bool is_literal_added(const struct tok_writer_token *token, const char *bytes, size_t len)
{
    const bool is_unit = token->flags & TOK_MODEL && len == 1 && utf8_has((unsigned char)bytes[0]);
    return token->added && !token->joined && !is_unit && utf8_valid(bytes, len) < len;
}

/* Decodes the spelling of a token from the byte alphabet; false if it must be stored as spelled. */
static bool decode_alphabet(const struct tok_writer *writer, const struct tok_writer_token *token,
                            const char *spelling, char *bytes, size_t *len)
{
    return writer->flags & TOK_BYTE_LEVEL && byte_alphabet_decode(spelling, token->len, bytes, len) &&
           !is_literal_added(token, bytes, *len);
}

/* Converts the spellings of all tokens to bytes, and sets token_at and token_flags. */
static void make_tokens(struct block_writer *block)
{
    struct tok_writer *w = block->writer;
    block->token_at = new_table(w, w->ids, sizeof block->token_at[0]);
    block->token_flags = new_table(w, w->ids, 1);
    for (size_t i = 0; i < w->ids && !w->failed; i++) {
        const struct tok_writer_token *token = &w->token[i];
        size_t len = token->len;
        block->token_flags[i] = token->flags;
        if (TOK_TRY(w, buf_reserve(&block->bytes, len, w->err)))
            return;
        const char *spelling = len ? w->spellings.data + token->spelling : "";
        char *bytes = block->bytes.data + block->bytes.len;
        if (!decode_alphabet(w, token, spelling, bytes, &len)) {
            block->token_flags[i] |= w->flags & TOK_BYTE_LEVEL ? TOK_LITERAL : 0;
            len = token->len;
            memcpy(bytes, spelling, len);
        }
        block->bytes.len += len;
        if (block->bytes.len > UINT32_MAX - w->texts.len)
            tok_writer_fail(w, "%s: too much text", w->where);
        block->token_at[i + 1] = (uint32_t)block->bytes.len;
    }
}

static bool hash_tokens(const struct block_writer *block, uint32_t *slot, size_t slots)
{
    memset(slot, 0xff, slots * sizeof slot[0]);
    for (uint32_t id = 0; id < block->writer->ids; id++) {
        uint32_t probe = 0;
        if (!block->token_flags[id])
            continue;
        uint32_t hash = tok_hash(token_bytes(block, id), token_len(block, id),
                                 (block->token_flags[id] & TOK_LITERAL) != 0);
        while (probe < TOK_MAX_PROBES && slot[(hash + probe) & (slots - 1)] != TOK_NONE)
            probe++;
        if (probe == TOK_MAX_PROBES)
            return false;
        slot[(hash + probe) & (slots - 1)] = id;
    }
    return true;
}

static void write_hash(struct block_writer *block)
{
    struct tok_writer *w = block->writer;
    size_t slots = 8;
    uint32_t *slot = NULL;
    while (slots < 2 * w->ids)
        slots *= 2;
    for (size_t most = slots * 8; !w->failed; slots *= 2) {
        free(slot);
        slot = slots <= most ? mem_alloc(slots, sizeof slot[0]) : NULL;
        if (!slot)
            tok_writer_fail(w, "%s: no hash table for %zu tokens", w->where, w->ids);
        else if (hash_tokens(block, slot, slots))
            break;
    }
    add_section(block, slot, slots);
    free(slot);
}

/* Orders merges by pair; of equal pairs the last one first. */
static int compare_merges(const void *one, const void *two)
{
    const struct tok_writer_merge *a = one, *b = two;
    if (a->left != b->left)
        return a->left < b->left ? -1 : 1;
    if (a->merge.right != b->merge.right)
        return a->merge.right < b->merge.right ? -1 : 1;
    return a->merge.rank > b->merge.rank ? -1 : a->merge.rank < b->merge.rank;
}

static void write_merges(struct block_writer *block)
{
    struct tok_writer *w = block->writer;
    size_t count = 0;
    AUTO(free_auto) uint32_t *run_at = new_table(w, w->ids, sizeof run_at[0]);
    AUTO(free_auto) struct tok_merge *merge = new_table(w, w->merges, sizeof merge[0]);
    if (w->merges)
        qsort(w->merge, w->merges, sizeof w->merge[0], compare_merges);
    for (size_t i = 0; i < w->merges && !w->failed; i++) {
        const struct tok_writer_merge *m = &w->merge[i];
        if (i > 0 && m[-1].left == m->left && m[-1].merge.right == m->merge.right)
            continue;
        merge[count++] = m->merge;
        run_at[m->left + 1]++;
    }
    for (size_t i = 0; i < w->ids && !w->failed; i++)
        run_at[i + 1] += run_at[i];
    add_section(block, run_at, w->ids + 1);
    add_section(block, merge, count);
}

static void write_units(struct block_writer *block)
{
    struct tok_writer *writer = block->writer;
    uint32_t unit[512];
    memset(unit, 0xff, sizeof unit);
    for (uint32_t id = 0; id < writer->ids; id++) {
        const struct tok_writer_token *token = &writer->token[id];
        if (!(token->flags & (TOK_MODEL | TOK_BYTE)))
            continue;
        if (token->flags & TOK_MODEL && token_len(block, id) == 1 &&
            !(block->token_flags[id] & TOK_LITERAL))
            unit[(unsigned char)*token_bytes(block, id)] = id;
        const char *spelling = writer->spellings.data + token->spelling;
        static const char digits[] = "0123456789ABCDEF";
        if (token->len != 6 || memcmp(spelling, "<0x", 3) != 0 || spelling[5] != '>')
            continue;
        const char *high = memchr(digits, spelling[3], 16), *low = memchr(digits, spelling[4], 16);
        if (high && low)
            unit[256 + (high - digits) * 16 + (low - digits)] = id;
    }
    add_section(block, unit, ARRAY_LEN(unit));
}

static int compare_added(const void *one, const void *two, void *arg)
{
    const struct tok_writer_added *a = one, *b = two;
    const char *texts = ((const struct tok_writer *)arg)->texts.data;
    if (a->normalized != b->normalized)
        return a->normalized ? 1 : -1;
    const int order = text_order(texts + a->text, a->len, texts + b->text, b->len);
    return order ? order : a->place < b->place ? -1 : 1;
}

static void write_added(struct block_writer *block)
{
    struct tok_writer *w = block->writer;
    AUTO(free_auto) struct tok_added *added = new_table(w, w->added_count, sizeof added[0]);
    if (w->added_count)
        qsort_r(w->added, w->added_count, sizeof w->added[0], compare_added, w);
    for (size_t i = 0; i < w->added_count && added; i++) {
        const struct tok_writer_added *from = &w->added[i];
        added[i] = (struct tok_added){from->id, from->flags, from->text + (uint32_t)block->bytes.len,
                                      from->len};
        block->header.added_raw += !from->normalized;
    }
    add_section(block, added, w->added_count);
}

static void write_steps(struct block_writer *block)
{
    struct tok_writer *writer = block->writer;
    struct tok_step all[LIST_COUNT * TOK_MAX_STEPS];
    size_t count = 0;
    for (size_t list = 0; list < LIST_COUNT; list++) {
        block->header.steps[list] = writer->steps[list];
        for (size_t i = 0; i < writer->steps[list]; i++, count++) {
            all[count] = writer->step[list][i];
            all[count].a += (uint32_t)block->bytes.len;
            all[count].b += (uint32_t)block->bytes.len;
        }
    }
    add_section(block, all, count);
}

static void write_template(struct block_writer *block)
{
    struct tok_writer *w = block->writer;
    AUTO(ids_release) struct ids all = {0};
    block->header.prefix = (uint32_t)w->prefix.len;
    TOK_TRY(w, ids_append(&all, &w->prefix, w->err));
    TOK_TRY(w, ids_append(&all, &w->suffix, w->err));
    add_section(block, all.id, all.len);
}

static void write_text(struct block_writer *block)
{
    struct tok_writer *w = block->writer;
    AUTO(buf_release) struct buf text = {0};
    TOK_TRY(w, buf_add(&text, block->bytes.data, block->bytes.len, w->err));
    TOK_TRY(w, buf_add(&text, w->texts.data, w->texts.len, w->err));
    add_section(block, text.data, text.len);
}

/* ---- ranks and the trie of vocabularies with scores ---- */

/* The ids of the model's tokens, in an order. */
static uint32_t *sorted_tokens(struct block_writer *block, size_t *count,
                               int order(const void *, const void *, void *))
{
    struct tok_writer *w = block->writer;
    uint32_t *token = new_table(w, w->ids, sizeof token[0]);
    *count = 0;
    for (uint32_t id = 0; id < w->ids && token; id++)
        if (block->token_flags[id] & TOK_MODEL)
            token[(*count)++] = id;
    if (token)
        qsort_r(token, *count, sizeof token[0], order, block);
    return token;
}

static int compare_scores(const void *one, const void *two, void *arg)
{
    const double *score = ((const struct block_writer *)arg)->writer->score;
    const double a = score[*(const uint32_t *)one], b = score[*(const uint32_t *)two];
    return a > b ? -1 : a < b;
}

/* Writes ranks of ids: 0 for the best score, equal for equal scores, TOK_NONE for those that are no tokens of the
 * model. */
static void write_ranks(struct block_writer *block)
{
    struct tok_writer *w = block->writer;
    size_t count;
    uint32_t next = 0, *token = sorted_tokens(block, &count, compare_scores),
             *rank = new_table(w, w->ids, sizeof rank[0]);
    if (rank)
        memset(rank, 0xff, w->ids * sizeof rank[0]);
    for (size_t i = 0; i < count && !w->failed; i++) {
        next += i > 0 && w->score[token[i]] < w->score[token[i - 1]];
        rank[token[i]] = next;
    }
    add_section(block, rank, w->ids);
    free(token);
    free(rank);
}

static int compare_bytes(const void *one, const void *two, void *arg)
{
    const uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)two;
    const int order =
        text_order(token_bytes(arg, a), token_len(arg, a), token_bytes(arg, b), token_len(arg, b));
    return order ? order : a < b ? -1 : 1;
}

/* A node of the trie: the sorted tokens [low, high) share their first `depth` bytes. */
struct node {
    uint32_t low, high, depth, run, id;
    uint8_t byte;
};

struct nodes {
    struct node *node;
    size_t count, cap;
};

static void add_node(struct tok_writer *w, struct nodes *nodes, struct node node)
{
    if (nodes->count >= TOK_NONE - 1)
        tok_writer_fail(w, "too many nodes for the tokenizer's trie");
    if (!TOK_TRY(w, mem_grow(&nodes->node, &nodes->cap, nodes->count, sizeof nodes->node[0], w->err)))
        nodes->node[nodes->count++] = node;
}

/* Appends the children of node `at`, and sets the id of the token that ends there: of equal tokens the last. */
static void add_children(struct block_writer *block, struct nodes *nodes, size_t at,
                         const uint32_t *token)
{
    const struct node parent = nodes->node[at];
    uint32_t low = parent.low;
    nodes->node[at].run = (uint32_t)nodes->count;
    nodes->node[at].id = TOK_NONE;
    for (; low < parent.high && token_len(block, token[low]) == parent.depth; low++)
        nodes->node[at].id = token[low];
    for (uint32_t end; low < parent.high; low = end) {
        const char byte = token_bytes(block, token[low])[parent.depth];
        for (end = low + 1; end < parent.high && token_bytes(block, token[end])[parent.depth] == byte;)
            end++;
        add_node(
            block->writer, nodes,
            (struct node){.low = low, .high = end, .depth = parent.depth + 1, .byte = (uint8_t)byte});
    }
}

static void write_trie(struct block_writer *block)
{
    struct tok_writer *w = block->writer;
    struct nodes nodes = {0};
    size_t count;
    uint32_t *token = sorted_tokens(block, &count, compare_bytes);
    add_node(w, &nodes, (struct node){.high = (uint32_t)count});
    for (size_t at = 0; at < nodes.count && !w->failed; at++)
        add_children(block, &nodes, at, token);
    AUTO(free_auto)
    uint32_t *run = new_table(w, nodes.count, sizeof *run), *id = new_table(w, nodes.count, sizeof *id);
    AUTO(free_auto) uint8_t *byte = new_table(w, nodes.count, 1);
    for (size_t i = 0; i < nodes.count && !w->failed; i++) {
        run[i] = nodes.node[i].run;
        byte[i] = nodes.node[i].byte;
        id[i] = nodes.node[i].id;
    }
    if (run)
        run[nodes.count] = (uint32_t)nodes.count;
    add_section(block, run, nodes.count + 1);
    add_section(block, byte, nodes.count);
    add_section(block, id, nodes.count);
    free(token);
    free(nodes.node);
}

/* Bytes of the longest token. *joins: some token contains a space (U+2581) after another character, so that it spans
 * words. */
static uint32_t measure_tokens(const struct block_writer *block, bool *joins)
{
    uint32_t longest = 0;
    *joins = false;
    for (uint32_t id = 0; id < block->writer->ids; id++) {
        const char *bytes = token_bytes(block, id);
        const uint32_t len = block->token_flags[id] & TOK_MODEL ? token_len(block, id) : 0;
        size_t at = 0;
        longest = len > longest ? len : longest;
        while (at < len && tok_is_space(bytes + at, len - at))
            at += 3;
        for (; at < len && !*joins; at++)
            *joins = tok_is_space(bytes + at, len - at);
    }
    return longest;
}

/* Writes the sections that version 2 adds; those that the kind lacks are empty. */
static void write_ext_sections(struct block_writer *block)
{
    struct tok_writer *w = block->writer;
    bool spm = w->kind == KIND_SPM, unigram = w->kind == KIND_UNIGRAM, joins;
    const uint32_t longest = measure_tokens(block, &joins);
    block->ext.longest = w->kind == KIND_BPE ? 0 : longest;
    block->ext.unk_score = w->unk_score;
    if (block->ext.longest > TOK_MAX_PIECE)
        tok_writer_fail(w, "%s: a token of %u bytes, more than %d", w->where, block->ext.longest,
                        (int)TOK_MAX_PIECE);
    if (spm && !(w->flags & TOK_HAS_UNUSED) && !joins)
        w->flags |= TOK_WORDS;
    need_scores(w, spm || unigram ? w->ids : 0);
    if (w->failed)
        return;
    if (spm)
        write_ranks(block);
    else
        add_section(block, NULL, 0);
    add_section(block, w->score, unigram ? w->ids : 0);
    if (unigram)
        write_trie(block);
    else
        for (size_t i = 0; i < 3; i++)
            add_section(block, NULL, 0);
    add_section(block, w->charsmap.data, w->charsmap.len);
}

static void write_header(struct block_writer *block)
{
    const struct tok_writer *writer = block->writer;
    struct tok_header *header = &block->header;
    memcpy(header->magic, TOK_MAGIC, sizeof TOK_MAGIC);
    header->version = block->has_ext ? TOK_VERSION_EXT : TOK_VERSION;
    header->kind = writer->kind;
    header->flags = writer->flags;
    header->size = block->out.len;
    header->ids = (uint32_t)writer->ids;
    header->unk = writer->unk;
    memcpy(block->out.data, header, sizeof *header);
    if (block->has_ext)
        memcpy(block->out.data + sizeof *header, &block->ext, sizeof block->ext);
}

int tok_writer_write(struct tok_writer *w, struct buf *blob)
{
    static void (*const sections[])(struct block_writer *) = {
        write_hash, write_merges, write_units, write_added, write_steps, write_template};
    struct block_writer block = {.writer = w, .has_ext = w->kind != KIND_BPE || w->charsmap.len > 0};
    TOK_TRY(w, buf_add(&block.out, &block.header, sizeof block.header, w->err));
    if (block.has_ext)
        TOK_TRY(w, buf_add(&block.out, &block.ext, sizeof block.ext, w->err));
    make_tokens(&block);
    write_text(&block);
    add_section(&block, block.token_at, w->ids + 1);
    add_section(&block, block.token_flags, w->ids);
    for (size_t i = 0; i < ARRAY_LEN(sections) && !w->failed; i++)
        sections[i](&block);
    if (block.has_ext && !w->failed)
        write_ext_sections(&block);
    if (!w->failed) {
        write_header(&block);
        TOK_TRY(w, buf_add(blob, block.out.data, block.out.len, w->err));
    }
    buf_release(&block.out);
    buf_release(&block.bytes);
    free(block.token_at);
    free(block.token_flags);
    return w->failed ? -1 : 0;
}

/* ---- added tokens: those that are matched in normalised text are normalised by a temporary tokenizer that has
 * only the normalizers ---- */

void tok_writer_add_added(struct tok_writer *w, int64_t id, const char *content, size_t len,
                          uint32_t flags, bool normalized, bool special)
{
    struct tok_writer_added added = {(uint32_t)id, flags, normalized, 0, (uint32_t)len, w->added_count};
    if (len > TOK_MAX_ADDED_BYTES)
        tok_writer_fail(w, "%s: added token %lld has %zu bytes, more than %d", w->where, (long long)id,
                        len, (int)TOK_MAX_ADDED_BYTES);
    tok_writer_set_token(w, id, content, len, special ? TOK_SPECIAL : 0);
    if (w->failed)
        return;
    added.text = keep_text(w, content, len);
    struct tok_writer_token *token = &w->token[id];
    if (token->added) {
        added.place = token->added - 1;
        w->added[added.place] = added;
        return;
    }
    if (TOK_TRY(w, mem_grow(&w->added, &w->added_cap, w->added_count, sizeof w->added[0], w->err)))
        return;
    w->added[w->added_count++] = added;
    token->added = (uint32_t)w->added_count;
}

void tok_writer_add_user_defined(struct tok_writer *w, int64_t id, const char *content, size_t len)
{
    AUTO(buf_release) struct buf spelling = {0};
    tok_writer_add_added(w, id, content, len, 0, true, false);
    if (!TOK_TRY(w, slice_replace((struct slice){content, len}, (struct slice){" ", 1},
                                  (struct slice){"\xe2\x96\x81", 3}, 3 * len, &spelling, w->err))) {
        struct tok_writer_added *added = &w->added[w->token[id].added - 1];
        added->text = keep_text(w, spelling.data, spelling.len);
        added->len = (uint32_t)spelling.len;
        if (added->len > TOK_MAX_ADDED_BYTES)
            tok_writer_fail(w, "%s: token %u has %u bytes, more than %d", w->where, added->id,
                            added->len, (int)TOK_MAX_ADDED_BYTES);
    }
}

void tok_writer_normalize_added(struct tok_writer *w)
{
    struct tok_writer bare = {
        .where = w->where, .err = w->err, .unk = TOK_NONE, .texts = w->texts, .charsmap = w->charsmap};
    AUTO(buf_release) struct buf blob = {0};
    struct tokenizer *tok = NULL;
    struct normalizer norm = {0};
    const char *normal;
    size_t len;
    bare.steps[LIST_NORMALIZER] = w->steps[LIST_NORMALIZER];
    memcpy(bare.step[LIST_NORMALIZER], w->step[LIST_NORMALIZER], sizeof bare.step[LIST_NORMALIZER]);
    TOK_TRY(w, tok_writer_write(&bare, &blob));
    TOK_TRY(w, tokenizer_open(&tok, blob.data, blob.len, w->err));
    for (size_t i = 0; i < w->added_count; i++) {
        struct tok_writer_added *added = &w->added[i];
        if (!added->normalized || TOK_TRY(w, norm_run(&norm, tok, w->texts.data + added->text,
                                                      added->len, &normal, &len, w->err)))
            continue;
        if (len == 0 || len > TOK_MAX_ADDED_BYTES)
            tok_writer_fail(w, "%s: added token %u has %zu bytes when normalized, expected 1 to %d",
                            w->where, added->id, len, (int)TOK_MAX_ADDED_BYTES);
        added->len = (uint32_t)len;
        if (!w->failed)
            added->text = keep_text(w, normal, len);
    }
    norm_release(&norm);
    tokenizer_free(tok);
}
