/* Opening and querying the tokenizer tables. */
#include "text/tokenizer/tok_tables.h"

#include "text/utf8.h"

/* ---- decoding the alphabet of byte-level vocabularies ---- */

/* The byte for which a character stands, or -1. */
static inline int byte_alphabet_byte(uint32_t letter)
{
    if (letter >= 256)
        return letter <= 288   ? (int)letter - 256
               : letter <= 322 ? (int)letter - 162
               : letter == 323 ? 173
                               : -1;
    return letter <= 32 || (letter >= 127 && letter <= 160) || letter == 173 ? -1 : (int)letter;
}

bool byte_alphabet_decode(const char *spelling, size_t len, char *out, size_t *out_len)
{
    *out_len = 0;
    for (size_t at = 0; at < len;) {
        uint32_t letter;
        at += utf8_decode(spelling + at, &letter);
        int byte = byte_alphabet_byte(letter);
        if (byte < 0)
            return false;
        out[(*out_len)++] = (char)byte;
    }
    return true;
}

static int damaged(struct err *err, const char *what, uint64_t found)
{
    return err_set(err, "tokenizer tables are damaged: %s (found %llu); convert the model again", what,
                   (unsigned long long)found);
}

/* The header extension of version 2; NULL in version 1. */
static const struct tok_header_ext *header_ext(const struct tok_header *header)
{
    return header->version == TOK_VERSION_EXT ? (const struct tok_header_ext *)(header + 1) : NULL;
}

static struct tok_section_ref section_ref(const struct tok_header *header, enum tok_section section)
{
    const struct tok_header_ext *ext = header_ext(header);
    if (section < SECTIONS_IN_HEADER)
        return header->section[section];
    return ext ? ext->section[section - SECTIONS_IN_HEADER] : (struct tok_section_ref){0};
}

/* First element of a section whose bounds have been checked. */
static const void *section_at(const struct tok_header *header, enum tok_section section)
{
    return (const char *)header + section_ref(header, section).offset;
}

static size_t section_count(const struct tok_header *header, enum tok_section section)
{
    return (size_t)section_ref(header, section).count;
}

static int check_bounds(const struct tok_header *header, size_t size, struct err *err)
{
    size_t head = sizeof *header + (header_ext(header) ? sizeof(struct tok_header_ext) : 0);
    size_t sections = header_ext(header) ? SECTION_COUNT : SECTIONS_IN_HEADER;
    for (size_t i = 0; i < sections; i++) {
        struct tok_section_ref place = section_ref(header, (enum tok_section)i);
        if (place.offset % 8 || place.offset < head || place.offset > size)
            return damaged(err, "a section starts outside the block", place.offset);
        if (place.count > (size - place.offset) / tok_element_size[i])
            return damaged(err, "a section ends outside the block", place.count);
    }
    return 0;
}

static int check_counts(const struct tok_header *header, struct err *err)
{
    uint64_t ids = header->ids, slots = section_count(header, SECTION_HASH);
    uint64_t nodes = header->kind == KIND_UNIGRAM ? section_count(header, SECTION_TRIE_IDS) : 0;
    const struct {
        enum tok_section section;
        uint64_t count;
    } expected[] = {
        {SECTION_TOKENS, ids + 1},
        {SECTION_FLAGS, ids},
        {SECTION_MERGE_RUNS, ids + 1},
        {SECTION_UNITS, 512},
        {SECTION_RANKS, header->kind == KIND_SPM ? ids : 0},
        {SECTION_SCORES, header->kind == KIND_UNIGRAM ? ids : 0},
        {SECTION_TRIE_RUNS, nodes ? nodes + 1 : 0},
        {SECTION_TRIE_BYTES, nodes},
        {SECTION_TRIE_IDS, nodes},
    };
    for (size_t i = 0; i < ARRAY_LEN(expected); i++)
        if (section_count(header, expected[i].section) != expected[i].count)
            return damaged(err, "a section has a wrong number of entries",
                           section_count(header, expected[i].section));
    if (!slots || slots & (slots - 1))
        return damaged(err, "the hash table's size is not a power of two", slots);
    if (section_count(header, SECTION_TEXT) > UINT32_MAX)
        return damaged(err, "too many bytes of text", section_count(header, SECTION_TEXT));
    if (nodes >= TOK_NONE || (header->kind == KIND_UNIGRAM && !nodes))
        return damaged(err, "a trie of a wrong size", nodes);
    return 0;
}

static int check_kind(const struct tok_header *header, struct err *err)
{
    const struct tok_header_ext *ext = header_ext(header);
    if (header->kind >= KIND_COUNT || (!ext && header->kind != KIND_BPE))
        return damaged(err, "an unknown kind of model", header->kind);
    if (header->kind != KIND_BPE && header->flags & TOK_BYTE_LEVEL)
        return damaged(err, "a byte alphabet in a model that has none", header->kind);
    if (ext && ext->longest > TOK_MAX_PIECE)
        return damaged(err, "a token that is too long", ext->longest);
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
    if (header->version != TOK_VERSION && header->version != TOK_VERSION_EXT)
        return err_set(err,
                       "tokenizer tables have version %u, this program reads %u and %u; convert "
                       "the model again",
                       header->version, (unsigned)TOK_VERSION, (unsigned)TOK_VERSION_EXT);
    if (header->size > size)
        return damaged(err, "the block is cut short", header->size);
    if (header_ext(header) && header->size < sizeof *header + sizeof(struct tok_header_ext))
        return damaged(err, "fewer bytes than a header has", header->size);
    if (header->ids == TOK_NONE)
        return damaged(err, "too many ids", header->ids);
    if (check_kind(header, err) < 0 || check_bounds(header, (size_t)header->size, err) < 0)
        return -1;
    return check_counts(header, err);
}

/* True if [start, start + len) is inside section TEXT and valid UTF-8. */
static bool is_text(const struct tokenizer *tok, uint32_t start, uint32_t len)
{
    return start <= tok->text_len && len <= tok->text_len - start &&
           utf8_valid(tok->text + start, len) == len;
}

/* Constraints of each kind of step: its list, largest option, and minimum length of operand a. */
static const struct step_rule {
    enum tok_list list;
    uint32_t max_option;
    uint32_t min_a;
} step_rules[STEP_KINDS] = {
    [NORMALIZE_UNICODE] = {LIST_NORMALIZER, FORM_COUNT - 1, 0},
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
    [DECODE_STRIP] = {LIST_DECODER, STRIP_UNTIL_TEXT, 1},
    [NORMALIZE_CHARSMAP] = {LIST_NORMALIZER, 0, 0},
    [NORMALIZE_SENTENCEPIECE] = {LIST_NORMALIZER, SENTENCEPIECE_PREFIX | SENTENCEPIECE_COLLAPSE, 0},
    [NORMALIZE_STRIP] = {LIST_NORMALIZER, STRIP_LEFT | STRIP_RIGHT, 0},
    [NORMALIZE_STRIP_ACCENTS] = {LIST_NORMALIZER, 0, 0},
    [NORMALIZE_LOWERCASE] = {LIST_NORMALIZER, 0, 0},
    [SPLIT_PUNCTUATION] = {LIST_PRETOKENIZER, SPLIT_INVERT + BEHAVIOR_COUNT - 1, 0},
    [SPLIT_TO_BYTE_ALPHABET] = {LIST_PRETOKENIZER, 0, 0},
    [SPLIT_FROM_BYTE_ALPHABET] = {LIST_PRETOKENIZER, 0, 0},
};

/* Checks a step's operands. SPLIT_FROM_BYTE_ALPHABET must be the last step of its list, since its
 * result is not UTF-8. */
static int check_step(const struct tokenizer *tok, const struct tok_step *step, bool last,
                      struct err *err)
{
    if (!is_text(tok, step->a, step->a_len) || !is_text(tok, step->b, step->b_len) ||
        step->a_len < step_rules[step->kind].min_a || step->a_len > TOK_MAX_PATTERN)
        return damaged(err, "a step without its text", step->a);
    if (step->kind == DECODE_STRIP && step->a_len != 1)
        return damaged(err, "more than a byte to strip", step->a_len);
    if (step->kind == SPLIT_FROM_BYTE_ALPHABET && (!last || !(tok->flags & TOK_BYTE_LEVEL)))
        return damaged(err, "bytes where there must be characters", step->kind);
    return 0;
}

static int open_steps(struct tokenizer *tok, const struct tok_header *header, struct err *err)
{
    const struct tok_step *step = section_at(header, SECTION_STEPS);
    uint64_t total = 0;
    for (size_t list = 0; list < LIST_COUNT; list++) {
        total += header->steps[list];
        if (header->steps[list] > TOK_MAX_STEPS || total > section_count(header, SECTION_STEPS))
            return damaged(err, "more steps than there are", header->steps[list]);
        tok->steps[list] = step;
        tok->step_count[list] = header->steps[list];
        for (size_t i = 0; i < header->steps[list]; i++, step++) {
            if (step->kind >= STEP_KINDS || step_rules[step->kind].list != list ||
                step->option > step_rules[step->kind].max_option)
                return damaged(err, "a step of an unknown kind", step->kind);
            if (check_step(tok, step, i + 1 == header->steps[list], err) < 0)
                return -1;
            tok->bytes_stand_alone |= step->kind == DECODE_BYTES;
            tok->starts_with_text |= step->kind == DECODE_STRIP && step->option == STRIP_UNTIL_TEXT;
        }
    }
    return 0;
}

static int open_added(struct tokenizer *tok, const struct tok_header *header, struct err *err)
{
    const struct tok_added *added = section_at(header, SECTION_ADDED);
    size_t count = section_count(header, SECTION_ADDED);
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
    tok->template_count = section_count(header, SECTION_TEMPLATE);
    tok->prefix = header->prefix;
    if (tok->prefix > tok->template_count)
        return damaged(err, "a prefix longer than the template", tok->prefix);
    for (size_t i = 0; i < tok->template_count; i++)
        if (tok->template_ids[i] >= tok->ids)
            return damaged(err, "a template id is outside the vocabulary", tok->template_ids[i]);
    return 0;
}

static void open_ext(struct tokenizer *tok, const struct tok_header *header)
{
    const struct tok_header_ext *ext = header_ext(header);
    tok->rank = section_at(header, SECTION_RANKS);
    tok->score = section_at(header, SECTION_SCORES);
    tok->trie_run = section_at(header, SECTION_TRIE_RUNS);
    tok->trie_byte = section_at(header, SECTION_TRIE_BYTES);
    tok->trie_id = section_at(header, SECTION_TRIE_IDS);
    tok->trie_nodes = section_count(header, SECTION_TRIE_IDS);
    tok->charsmap = section_at(header, SECTION_CHARSMAP);
    tok->charsmap_bytes = section_count(header, SECTION_CHARSMAP);
    tok->longest = ext ? ext->longest : 0;
    tok->unk_score = ext ? ext->unk_score : 0;
}

int tok_tables_open(struct tokenizer *tok, const void *blob, size_t size, struct err *err)
{
    const struct tok_header *header = blob;
    if (check_header(header, size, err) < 0)
        return -1;
    tok->kind = (enum tok_kind)header->kind;
    tok->flags = header->flags;
    tok->ids = header->ids;
    tok->unk = header->unk < header->ids ? header->unk : TOK_NONE;
    tok->text = section_at(header, SECTION_TEXT);
    tok->text_len = section_count(header, SECTION_TEXT);
    tok->token_at = section_at(header, SECTION_TOKENS);
    tok->token_flags = section_at(header, SECTION_FLAGS);
    tok->slot = section_at(header, SECTION_HASH);
    tok->slots = section_count(header, SECTION_HASH);
    tok->run_at = section_at(header, SECTION_MERGE_RUNS);
    tok->merge = section_at(header, SECTION_MERGES);
    tok->merges = section_count(header, SECTION_MERGES);
    tok->unit = section_at(header, SECTION_UNITS);
    tok->byte_unit = tok->unit + 256;
    open_ext(tok, header);
    if (open_steps(tok, header, err) < 0 || open_added(tok, header, err) < 0)
        return -1;
    return open_template(tok, header, err);
}

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
