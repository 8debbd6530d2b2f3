/* Writes the block that tok_tables.h describes: the last step of building a tokenizer. Knows nothing of
 * the files that the tables come from. */
#include "text/tok_draft.h"

#include <sodium.h>
#include <stdlib.h>

#include "text/charsmap.h"
#include "text/letters.h"
#include "text/tok_sorted.h"
#include "text/utf8.h"

void tok_draft_release(struct tok_draft *draft)
{
    buf_release(&draft->spellings);
    buf_release(&draft->texts);
    free(draft->token);
    free(draft->merge);
    free(draft->added);
    ids_release(&draft->prefix);
    ids_release(&draft->suffix);
    free(draft->score);
    buf_release(&draft->charsmap);
    *draft = (struct tok_draft){0};
}

int tok_draft_set_token(struct tok_draft *draft, int64_t id, const char *spelling, size_t len,
                        uint8_t flags, struct err *err)
{
    if (id < 0 || (uint64_t)id >= draft->vocab_rows || id >= TOK_NONE || len > UINT32_MAX)
        return err_set(err, "%s: token \"%.*s\" has id %lld, but the model's embedding has %zu rows",
                       draft->where, (int)size_min(len, 60), spelling, (long long)id,
                       draft->vocab_rows);
    while (draft->ids <= (size_t)id) {
        if (mem_grow(&draft->token, &draft->token_cap, draft->ids, sizeof draft->token[0], err) < 0)
            return -1;
        draft->token[draft->ids++] = (struct tok_draft_token){0};
    }
    struct tok_draft_token *token = &draft->token[id];
    if (!token->flags) {
        token->spelling = draft->spellings.len;
        token->len = (uint32_t)len;
        if (buf_add(&draft->spellings, spelling, len, err) < 0)
            return -1;
    } else if (token->len != len ||
               memcmp(draft->spellings.data + token->spelling, spelling, len) != 0) {
        return err_set(err, "%s: token \"%.*s\" has id %lld, which token \"%.*s\" has too",
                       draft->where, (int)size_min(len, 60), spelling, (long long)id,
                       (int)size_min(token->len, 60), draft->spellings.data + token->spelling);
    }
    token->flags |= flags | TOK_PRESENT;
    return 0;
}

int tok_draft_keep_text(struct tok_draft *draft, const char *text, size_t len, uint32_t *at,
                        struct err *err)
{
    if (len > UINT32_MAX - draft->texts.len)
        return err_set(err, "%s: too much text", draft->where);
    *at = (uint32_t)draft->texts.len;
    return buf_add(&draft->texts, text, len, err);
}

int tok_draft_add_step(struct tok_draft *draft, enum tok_list list, enum tok_step_kind kind,
                       uint32_t option, const struct slice *a, const struct slice *b, struct err *err)
{
    struct tok_step step = {.kind = kind, .option = option};
    if (draft->steps[list] == TOK_MAX_STEPS)
        return err_set(err, "%s: more than %d steps of one kind", draft->where, (int)TOK_MAX_STEPS);
    if ((a && a->size > TOK_MAX_PATTERN) || (b && b->size > TOK_MAX_PATTERN))
        return err_set(err, "%s: a pattern of more than %d bytes", draft->where, (int)TOK_MAX_PATTERN);
    if (a && tok_draft_keep_text(draft, a->data, a->size, &step.a, err) < 0)
        return -1;
    if (b && tok_draft_keep_text(draft, b->data, b->size, &step.b, err) < 0)
        return -1;
    step.a_len = a ? (uint32_t)a->size : 0;
    step.b_len = b ? (uint32_t)b->size : 0;
    draft->step[list][draft->steps[list]++] = step;
    return 0;
}

int tok_draft_add_merge(struct tok_draft *draft, uint32_t left, uint32_t right, uint32_t result,
                        struct err *err)
{
    if (draft->merges >= TOK_NONE)
        return err_set(err, "%s: too many merges", draft->where);
    if (mem_grow(&draft->merge, &draft->merge_cap, draft->merges, sizeof draft->merge[0], err) < 0)
        return -1;
    const uint32_t ids[] = {left, right, result};
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        if (ids[i] < draft->ids)
            draft->token[ids[i]].joined = true;
    struct tok_merge merge = {right, (uint32_t)draft->merges, result};
    draft->merge[draft->merges++] = (struct tok_draft_merge){left, merge};
    return 0;
}

/* Makes room for the scores of `count` ids. */
static int need_scores(struct tok_draft *draft, size_t count, struct err *err)
{
    for (size_t used = draft->score_cap; used < count; used = draft->score_cap) {
        if (mem_grow(&draft->score, &draft->score_cap, used, sizeof draft->score[0], err) < 0)
            return -1;
        memset(draft->score + used, 0, (draft->score_cap - used) * sizeof draft->score[0]);
    }
    return 0;
}

int tok_draft_set_score(struct tok_draft *draft, size_t id, double score, struct err *err)
{
    if (need_scores(draft, id + 1, err) < 0)
        return -1;
    draft->score[id] = score;
    return 0;
}

int tok_draft_set_charsmap(struct tok_draft *draft, struct slice base64, struct err *err)
{
    struct buf *map = &draft->charsmap;
    const char *end;
    if (map->len)
        return err_set(err, "%s: more than one charsmap is not implemented", draft->where);
    if (buf_reserve(map, base64.size / 4 * 3 + 3, err) < 0)
        return -1;
    if (sodium_base642bin((unsigned char *)map->data, map->cap, base64.data, base64.size, NULL,
                          &map->len, &end, sodium_base64_VARIANT_ORIGINAL) != 0 ||
        end != base64.data + base64.size || !charsmap_valid(map->data, map->len))
        return err_set(err, "%s: the charsmap of the normalizer is damaged", draft->where);
    return 0;
}

/* --- writing --- */

/* The block while it is written: sections are appended in order. */
struct block {
    struct tok_draft *draft;
    bool has_more;
    struct tok_header header;
    struct tok_more more; /* of version 2 only */
    struct buf out;
    enum tok_section next;
    struct buf bytes;     /* of all tokens, in order of id */
    uint32_t *token_at;   /* ids + 1 */
    uint8_t *token_flags; /* ids */
};

static int add_section(struct block *block, const void *data, size_t count, struct err *err)
{
    static const char zeros[8];
    size_t size;
    if (!size_mul(count, tok_element_size[block->next], &size))
        return err_set(err, "%s: tables of the tokenizer are too large", block->draft->where);
    struct tok_place *place = block->next < SECTIONS_IN_HEADER
                                  ? &block->header.section[block->next]
                                  : &block->more.section[block->next - SECTIONS_IN_HEADER];
    *place = (struct tok_place){block->out.len, count};
    block->next++;
    if (buf_add(&block->out, data, size, err) < 0)
        return -1;
    return buf_add(&block->out, zeros, round_up(block->out.len, 8) - block->out.len, err);
}

/* Neither C0 nor C1, nor what is above F4, is in any UTF-8. */
static bool utf8_has(unsigned char byte) { return byte < 0xc0 || (byte > 0xc1 && byte < 0xf5); }

/* An added token such as U+00FC, which is also a letter, of a byte that is no text: it stands for itself. */
static bool stands_for_itself(const struct tok_draft_token *token, const char *bytes, size_t len)
{
    const bool is_unit = token->flags & TOK_MODEL && len == 1 && utf8_has((unsigned char)bytes[0]);
    return token->added && !token->joined && !is_unit && utf8_valid(bytes, len) < len;
}

/* The bytes of a spelling in letters, or false. */
static bool spelled_in_letters(const struct tok_draft *draft, const struct tok_draft_token *token,
                               const char *spelling, char *bytes, size_t *len)
{
    return draft->flags & TOK_BYTE_LEVEL && letters_to_bytes(spelling, token->len, bytes, len) &&
           !stands_for_itself(token, bytes, *len);
}

/* Spellings to bytes. */
static int make_tokens(struct block *block, struct err *err)
{
    struct tok_draft *draft = block->draft;
    block->token_at = mem_zalloc(draft->ids + 1, sizeof block->token_at[0]);
    block->token_flags = mem_zalloc(draft->ids + 1, 1);
    if (!block->token_at || !block->token_flags)
        return err_set(err, "out of memory: a vocabulary of %zu tokens", draft->ids);
    for (size_t i = 0; i < draft->ids; i++) {
        const struct tok_draft_token *token = &draft->token[i];
        size_t len = token->len;
        block->token_flags[i] = token->flags;
        if (buf_reserve(&block->bytes, len, err) < 0)
            return -1;
        const char *spelling = len ? draft->spellings.data + token->spelling : "";
        char *bytes = block->bytes.data + block->bytes.len;
        if (!spelled_in_letters(draft, token, spelling, bytes, &len)) {
            block->token_flags[i] |= draft->flags & TOK_BYTE_LEVEL ? TOK_LITERAL : 0;
            len = token->len;
            memcpy(bytes, spelling, len);
        }
        block->bytes.len += len;
        if (block->bytes.len > UINT32_MAX - draft->texts.len)
            return err_set(err, "%s: too much text", draft->where);
        block->token_at[i + 1] = (uint32_t)block->bytes.len;
    }
    return 0;
}

static bool hash_tokens(const struct block *block, uint32_t *slot, size_t slots)
{
    memset(slot, 0xff, slots * sizeof slot[0]);
    for (uint32_t id = 0; id < block->draft->ids; id++) {
        uint32_t start = block->token_at[id], probe = 0;
        if (!block->token_flags[id])
            continue;
        uint32_t hash = tok_hash(block->bytes.data + start, block->token_at[id + 1] - start,
                                 (block->token_flags[id] & TOK_LITERAL) != 0);
        while (probe < TOK_MAX_PROBES && slot[(hash + probe) & (slots - 1)] != TOK_NONE)
            probe++;
        if (probe == TOK_MAX_PROBES)
            return false;
        slot[(hash + probe) & (slots - 1)] = id;
    }
    return true;
}

static int write_hash(struct block *block, struct err *err)
{
    size_t slots = 8;
    int rc = -1;
    uint32_t *slot = NULL;
    while (slots < 2 * block->draft->ids)
        slots *= 2;
    for (size_t most = slots * 8;; slots *= 2) {
        free(slot);
        slot = slots <= most ? mem_alloc(slots, sizeof slot[0]) : NULL;
        if (!slot) {
            err_set(err, "%s: no hash table for %zu tokens", block->draft->where, block->draft->ids);
            goto out;
        }
        if (hash_tokens(block, slot, slots))
            break;
    }
    rc = add_section(block, slot, slots, err);
out:
    free(slot);
    return rc;
}

/* By pair; of equal pairs the last one named comes first. */
static int compare_merges(const void *one, const void *two)
{
    const struct tok_draft_merge *a = one, *b = two;
    if (a->left != b->left)
        return a->left < b->left ? -1 : 1;
    if (a->merge.right != b->merge.right)
        return a->merge.right < b->merge.right ? -1 : 1;
    return a->merge.rank > b->merge.rank ? -1 : a->merge.rank < b->merge.rank;
}

static int write_merges(struct block *block, struct err *err)
{
    struct tok_draft *draft = block->draft;
    int rc = -1;
    size_t count = 0;
    uint32_t *run_at = mem_zalloc(draft->ids + 1, sizeof run_at[0]);
    struct tok_merge *merge = mem_alloc(draft->merges, sizeof merge[0]);
    if (!run_at || !merge) {
        err_set(err, "out of memory: %zu merges", draft->merges);
        goto out;
    }
    if (draft->merges)
        qsort(draft->merge, draft->merges, sizeof draft->merge[0], compare_merges);
    for (size_t i = 0; i < draft->merges; i++) {
        const struct tok_draft_merge *m = &draft->merge[i];
        if (i > 0 && m[-1].left == m->left && m[-1].merge.right == m->merge.right)
            continue;
        merge[count++] = m->merge;
        run_at[m->left + 1]++;
    }
    for (size_t i = 0; i < draft->ids; i++)
        run_at[i + 1] += run_at[i];
    if (add_section(block, run_at, draft->ids + 1, err) < 0 ||
        add_section(block, merge, count, err) < 0)
        goto out;
    rc = 0;
out:
    free(run_at);
    free(merge);
    return rc;
}

static int write_units(struct block *block, struct err *err)
{
    struct tok_draft *draft = block->draft;
    uint32_t unit[512];
    memset(unit, 0xff, sizeof unit);
    for (uint32_t id = 0; id < draft->ids; id++) {
        const struct tok_draft_token *token = &draft->token[id];
        uint32_t start = block->token_at[id], len = block->token_at[id + 1] - start;
        if (!(token->flags & (TOK_MODEL | TOK_BYTE)))
            continue;
        if (token->flags & TOK_MODEL && len == 1 && !(block->token_flags[id] & TOK_LITERAL))
            unit[(unsigned char)block->bytes.data[start]] = id;
        const char *spelling = draft->spellings.data + token->spelling;
        static const char digits[] = "0123456789ABCDEF";
        if (token->len != 6 || memcmp(spelling, "<0x", 3) != 0 || spelling[5] != '>')
            continue;
        const char *high = memchr(digits, spelling[3], 16), *low = memchr(digits, spelling[4], 16);
        if (high && low)
            unit[256 + (high - digits) * 16 + (low - digits)] = id;
    }
    return add_section(block, unit, ARRAY_LEN(unit), err);
}

/* qsort() has no argument to pass these in another way. */
struct sort_added {
    const char *text;
    size_t place;
    struct tok_draft_added added;
};

static int compare_added(const void *one, const void *two)
{
    const struct sort_added *a = one, *b = two;
    if (a->added.normalized != b->added.normalized)
        return a->added.normalized ? 1 : -1;
    int order = memcmp(a->text, b->text, size_min(a->added.len, b->added.len));
    if (order == 0 && a->added.len != b->added.len)
        order = a->added.len < b->added.len ? -1 : 1;
    return order ? order : a->place < b->place ? -1 : 1;
}

static int write_added(struct block *block, struct err *err)
{
    struct tok_draft *draft = block->draft;
    size_t count = draft->added_count;
    int rc = -1;
    struct sort_added *sorted = mem_alloc(count, sizeof sorted[0]);
    struct tok_added *added = mem_alloc(count, sizeof added[0]);
    if (!sorted || !added) {
        err_set(err, "out of memory: %zu added tokens", count);
        goto out;
    }
    for (size_t i = 0; i < count; i++)
        sorted[i] = (struct sort_added){draft->texts.data + draft->added[i].text, i, draft->added[i]};
    if (count)
        qsort(sorted, count, sizeof sorted[0], compare_added);
    for (size_t i = 0; i < count; i++) {
        const struct tok_draft_added *from = &sorted[i].added;
        added[i] = (struct tok_added){from->id, from->flags, from->text + (uint32_t)block->bytes.len,
                                      from->len};
        block->header.added_raw += !from->normalized;
    }
    rc = add_section(block, added, count, err);
out:
    free(sorted);
    free(added);
    return rc;
}

static int write_steps(struct block *block, struct err *err)
{
    struct tok_draft *draft = block->draft;
    struct tok_step all[LIST_COUNT * TOK_MAX_STEPS];
    size_t count = 0;
    for (size_t list = 0; list < LIST_COUNT; list++) {
        block->header.steps[list] = draft->steps[list];
        for (size_t i = 0; i < draft->steps[list]; i++, count++) {
            all[count] = draft->step[list][i];
            all[count].a += (uint32_t)block->bytes.len;
            all[count].b += (uint32_t)block->bytes.len;
        }
    }
    return add_section(block, all, count, err);
}

static int write_template(struct block *block, struct err *err)
{
    struct ids all = {0};
    const struct ids *parts[] = {&block->draft->prefix, &block->draft->suffix};
    int rc = -1;
    block->header.prefix = (uint32_t)block->draft->prefix.len;
    for (size_t part = 0; part < ARRAY_LEN(parts); part++)
        for (size_t i = 0; i < parts[part]->len; i++)
            if (ids_add(&all, parts[part]->id[i], err) < 0)
                goto out;
    rc = add_section(block, all.id, all.len, err);
out:
    ids_release(&all);
    return rc;
}

static int write_text(struct block *block, struct err *err)
{
    struct buf text = {0};
    int rc = -1;
    if (buf_add(&text, block->bytes.data, block->bytes.len, err) < 0 ||
        buf_add(&text, block->draft->texts.data, block->draft->texts.len, err) < 0)
        goto out;
    rc = add_section(block, text.data, text.len, err);
out:
    buf_release(&text);
    return rc;
}

static int write_ranks(struct block *block, const struct tok_vocab *vocab, struct err *err)
{
    uint32_t *rank = mem_alloc(vocab->ids + (size_t)1, sizeof rank[0]);
    int rc = -1;
    if (!rank)
        err_set(err, "out of memory: a vocabulary of %u tokens", vocab->ids);
    else if (tok_vocab_ranks(vocab, block->draft->score, rank, err) == 0)
        rc = add_section(block, rank, vocab->ids, err);
    free(rank);
    return rc;
}

/* An empty one where the kind of model has none. */
static int write_trie(struct block *block, const struct tok_vocab *vocab, bool wanted, struct err *err)
{
    struct tok_trie trie = {0};
    int rc = -1;
    if (wanted && tok_trie_build(vocab, &trie, err) < 0)
        goto out;
    if (add_section(block, trie.run, trie.nodes + wanted, err) < 0 ||
        add_section(block, trie.byte, trie.nodes, err) < 0 ||
        add_section(block, trie.id, trie.nodes, err) < 0)
        goto out;
    rc = 0;
out:
    tok_trie_release(&trie);
    return rc;
}

/* The sections of version 2. */
static int write_more(struct block *block, struct err *err)
{
    struct tok_draft *draft = block->draft;
    bool spm = draft->kind == KIND_SPM, unigram = draft->kind == KIND_UNIGRAM;
    const struct tok_vocab vocab = {block->bytes.data, block->token_at, block->token_flags,
                                    (uint32_t)draft->ids};
    if (!block->has_more)
        return 0;
    block->more.longest = draft->kind == KIND_BPE ? 0 : tok_vocab_longest(&vocab);
    block->more.unk_score = draft->unk_score;
    if (block->more.longest > TOK_MAX_PIECE)
        return err_set(err, "%s: a token of %u bytes, more than %d", draft->where, block->more.longest,
                       (int)TOK_MAX_PIECE);
    if (spm && !(draft->flags & TOK_HAS_UNUSED) && !tok_vocab_joins_words(&vocab))
        draft->flags |= TOK_WORDS;
    if (need_scores(draft, spm || unigram ? draft->ids : 0, err) < 0)
        return -1;
    if (spm ? write_ranks(block, &vocab, err) < 0 : add_section(block, NULL, 0, err) < 0)
        return -1;
    if (add_section(block, draft->score, unigram ? draft->ids : 0, err) < 0 ||
        write_trie(block, &vocab, unigram, err) < 0)
        return -1;
    return add_section(block, draft->charsmap.data, draft->charsmap.len, err);
}

static void write_header(struct block *block)
{
    const struct tok_draft *draft = block->draft;
    struct tok_header *header = &block->header;
    memcpy(header->magic, TOK_MAGIC, sizeof TOK_MAGIC);
    header->version = block->has_more ? TOK_VERSION_MORE : TOK_VERSION;
    header->kind = draft->kind;
    header->flags = draft->flags;
    header->size = block->out.len;
    header->ids = (uint32_t)draft->ids;
    header->unk = draft->unk;
    memcpy(block->out.data, header, sizeof *header);
    if (block->has_more)
        memcpy(block->out.data + sizeof *header, &block->more, sizeof block->more);
}

int tok_draft_write(struct tok_draft *draft, struct buf *blob, struct err *err)
{
    struct block block = {.draft = draft,
                          .has_more = draft->kind != KIND_BPE || draft->charsmap.len > 0};
    int rc = -1;
    if (buf_add(&block.out, &block.header, sizeof block.header, err) < 0 ||
        (block.has_more && buf_add(&block.out, &block.more, sizeof block.more, err) < 0) ||
        make_tokens(&block, err) < 0 || write_text(&block, err) < 0 ||
        add_section(&block, block.token_at, draft->ids + 1, err) < 0 ||
        add_section(&block, block.token_flags, draft->ids, err) < 0 || write_hash(&block, err) < 0 ||
        write_merges(&block, err) < 0 || write_units(&block, err) < 0 || write_added(&block, err) < 0 ||
        write_steps(&block, err) < 0 || write_template(&block, err) < 0 || write_more(&block, err) < 0)
        goto out;
    write_header(&block);
    rc = buf_add(blob, block.out.data, block.out.len, err);
out:
    buf_release(&block.out);
    buf_release(&block.bytes);
    free(block.token_at);
    free(block.token_flags);
    return rc;
}
