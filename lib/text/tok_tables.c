/* The block of look-up tables: checked when it is opened, and asked. */
#include "text/tok_tables.h"

#include "text/utf8.h"

static int damaged(struct err *err, const char *what, uint64_t found)
{
    return err_set(err, "tokenizer tables are damaged: %s (found %llu); convert the model again", what,
                   (unsigned long long)found);
}

/* Section's first element, after its bounds were checked. */
static const void *section_at(const struct tok_header *header, enum tok_section section)
{
    return (const char *)header + header->section[section].offset;
}

static int check_sections(const struct tok_header *header, size_t size, struct err *err)
{
    for (size_t i = 0; i < SECTION_COUNT; i++) {
        uint64_t offset = header->section[i].offset, count = header->section[i].count;
        if (offset % 8 || offset < sizeof *header || offset > size)
            return damaged(err, "a section starts outside the block", offset);
        if (count > (size - offset) / tok_element_size[i])
            return damaged(err, "a section ends outside the block", count);
    }
    uint64_t ids = header->ids, slots = header->section[SECTION_HASH].count;
    const struct {
        enum tok_section section;
        uint64_t count;
    } expected[] = {
        {SECTION_TOKENS, ids + 1},
        {SECTION_FLAGS, ids},
        {SECTION_MERGE_RUNS, ids + 1},
        {SECTION_UNITS, 512},
    };
    for (size_t i = 0; i < ARRAY_LEN(expected); i++)
        if (header->section[expected[i].section].count != expected[i].count)
            return damaged(err, "a section has a wrong number of entries",
                           header->section[expected[i].section].count);
    if (!slots || slots & (slots - 1))
        return damaged(err, "the hash table's size is not a power of two", slots);
    if (header->section[SECTION_TEXT].count > UINT32_MAX)
        return damaged(err, "too many bytes of text", header->section[SECTION_TEXT].count);
    return 0;
}

static int check_header(const struct tok_header *header, size_t size, struct err *err)
{
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
        return err_set(err, "tokenizer tables can only be used on little-endian machines");
    if ((uintptr_t)header % 8)
        return err_set(err, "tokenizer tables must lie at a multiple of 8 bytes");
    if (size < sizeof *header)
        return damaged(err, "fewer bytes than a header has", size);
    if (memcmp(header->magic, TOK_MAGIC, sizeof header->magic) != 0)
        return damaged(err, "they do not start with \"" TOK_MAGIC "\"",
                       (unsigned char)header->magic[0]);
    if (header->version != TOK_VERSION)
        return err_set(
            err, "tokenizer tables have version %u, this program reads %u; convert the model again",
            header->version, (unsigned)TOK_VERSION);
    if (header->size > size)
        return damaged(err, "the block is cut short", header->size);
    if (header->ids == TOK_NONE)
        return damaged(err, "too many ids", header->ids);
    return check_sections(header, (size_t)header->size, err);
}

/* Whether [start, start + len) of TEXT is valid UTF-8. */
static bool is_text(const struct tokenizer *tok, uint32_t start, uint32_t len)
{
    return start <= tok->text_len && len <= tok->text_len - start &&
           utf8_valid(tok->text + start, len) == len;
}

/* What a step of each kind needs: its list, the largest option, and the least bytes of a. */
static const struct step_rule {
    enum tok_list list;
    uint32_t max_option;
    uint32_t min_a;
} step_rules[STEP_KINDS] = {
    [NORMALIZE_NFC] = {LIST_NORMALIZER, 0, 0},
    [NORMALIZE_PREPEND] = {LIST_NORMALIZER, 0, 0},
    [NORMALIZE_REPLACE] = {LIST_NORMALIZER, 0, 1},
    [NORMALIZE_REPLACE_PATTERN] = {LIST_NORMALIZER, 0, 0},
    [SPLIT_PREFIX] = {LIST_PRETOKENIZER, PREFIX_FIRST, 1},
    [SPLIT_REPLACE] = {LIST_PRETOKENIZER, 0, 1},
    [SPLIT_PATTERN] = {LIST_PRETOKENIZER, SPLIT_INVERT + BEHAVIOR_COUNT - 1, 0},
    [SPLIT_TEXT] = {LIST_PRETOKENIZER, SPLIT_INVERT + BEHAVIOR_COUNT - 1, 1},
    [SPLIT_DIGITS] = {LIST_PRETOKENIZER, SPLIT_INVERT + BEHAVIOR_COUNT - 1, 0},
    [DECODE_REPLACE] = {LIST_DECODER, 0, 1},
    [DECODE_METASPACE] = {LIST_DECODER, 1, 1},
    [DECODE_BYTES] = {LIST_DECODER, 0, 0},
    [DECODE_STRIP] = {LIST_DECODER, 0, 1},
};

static int open_steps(struct tokenizer *tok, const struct tok_header *header, struct err *err)
{
    const struct tok_step *step = section_at(header, SECTION_STEPS);
    uint64_t total = 0;
    for (size_t list = 0; list < LIST_COUNT; list++) {
        total += header->steps[list];
        if (header->steps[list] > TOK_MAX_STEPS || total > header->section[SECTION_STEPS].count)
            return damaged(err, "more steps than there are", header->steps[list]);
        tok->steps[list] = step;
        tok->step_count[list] = header->steps[list];
        for (size_t i = 0; i < header->steps[list]; i++, step++) {
            if (step->kind >= STEP_KINDS || step_rules[step->kind].list != list ||
                step->option > step_rules[step->kind].max_option)
                return damaged(err, "a step of an unknown kind", step->kind);
            if (!is_text(tok, step->a, step->a_len) || !is_text(tok, step->b, step->b_len) ||
                step->a_len < step_rules[step->kind].min_a || step->a_len > TOK_MAX_PATTERN)
                return damaged(err, "a step without its text", step->a);
            if (step->kind == DECODE_STRIP && step->a_len != 1)
                return damaged(err, "more than a byte to strip", step->a_len);
            tok->bytes_stand_alone |= step->kind == DECODE_BYTES;
        }
    }
    return 0;
}

static int open_added(struct tokenizer *tok, const struct tok_header *header, struct err *err)
{
    const struct tok_added *added = section_at(header, SECTION_ADDED);
    size_t count = header->section[SECTION_ADDED].count;
    if (header->added_raw > count)
        return damaged(err, "more added tokens than there are", header->added_raw);
    tok->added[0] = added;
    tok->added_count[0] = header->added_raw;
    tok->added[1] = added + header->added_raw;
    tok->added_count[1] = count - header->added_raw;
    for (size_t i = 0; i < count; i++) {
        if (added[i].id >= tok->ids)
            return damaged(err, "an added token's id is outside the vocabulary", added[i].id);
        if (!added[i].len || added[i].len > TOK_MAX_ADDED_BYTES ||
            !is_text(tok, added[i].text, added[i].len))
            return damaged(err, "an added token without its text", added[i].len);
        tok->added_start[i >= header->added_raw][(unsigned char)tok->text[added[i].text]] = 1;
    }
    return 0;
}

static int open_template(struct tokenizer *tok, const struct tok_header *header, struct err *err)
{
    tok->template_ids = section_at(header, SECTION_TEMPLATE);
    tok->template_count = header->section[SECTION_TEMPLATE].count;
    tok->prefix = header->prefix;
    if (tok->prefix > tok->template_count)
        return damaged(err, "more start tokens than there are", tok->prefix);
    for (size_t i = 0; i < tok->template_count; i++)
        if (tok->template_ids[i] >= tok->ids)
            return damaged(err, "a start or end token is outside the vocabulary", tok->template_ids[i]);
    return 0;
}

int tok_tables_open(struct tokenizer *tok, const void *blob, size_t size, struct err *err)
{
    const struct tok_header *header = blob;
    if (check_header(header, size, err) < 0)
        return -1;
    tok->flags = header->flags;
    tok->ids = header->ids;
    tok->unk = header->unk < header->ids ? header->unk : TOK_NONE;
    tok->text = section_at(header, SECTION_TEXT);
    tok->text_len = header->section[SECTION_TEXT].count;
    tok->token_at = section_at(header, SECTION_TOKENS);
    tok->token_flags = section_at(header, SECTION_FLAGS);
    tok->slot = section_at(header, SECTION_HASH);
    tok->slots = header->section[SECTION_HASH].count;
    tok->run_at = section_at(header, SECTION_MERGE_RUNS);
    tok->merge = section_at(header, SECTION_MERGES);
    tok->merges = header->section[SECTION_MERGES].count;
    tok->unit = section_at(header, SECTION_UNITS);
    tok->byte_unit = tok->unit + 256;
    if (open_steps(tok, header, err) < 0 || open_added(tok, header, err) < 0)
        return -1;
    return open_template(tok, header, err);
}

/* --- look-ups --- */

uint32_t tok_lookup(const struct tokenizer *tok, const char *bytes, size_t len, bool literal,
                    uint8_t wanted)
{
    uint32_t hash = tok_hash(bytes, len, literal);
    for (uint32_t i = 0; i < TOK_MAX_PROBES; i++) {
        size_t id_len;
        uint32_t id = tok->slot[(hash + i) & (tok->slots - 1)];
        if (id == TOK_NONE)
            break;
        const char *id_bytes = tok_bytes(tok, id, &id_len);
        uint8_t flags = tok_flags(tok, id);
        if (id_len == len && (flags & wanted) == wanted && literal == !!(flags & TOK_LITERAL) &&
            memcmp(id_bytes, bytes, len) == 0 && id < tok->ids)
            return id;
    }
    return TOK_NONE;
}
