/* The tokenizer tables, byte by byte, and the opened tokenizer that points into them.
 *
 * Integers are little-endian. The block starts with struct tok_header; each section is 8-byte
 * aligned, in the order of enum tok_section, and has `count` elements:
 *
 *    TEXT        uint8     all strings: the tokens' bytes in id order, then those of steps and patterns
 *    TOKENS      uint32    ids + 1 offsets into TEXT: token i is [TOKENS[i], TOKENS[i + 1])
 *    FLAGS       uint8     one per id, enum tok_flag
 *    HASH        uint32    a power of two of slots: an id, or TOK_NONE; see tok_hash()
 *    MERGE_RUNS  uint32    ids + 1 indices into MERGES: pairs with left id i are [RUNS[i], RUNS[i + 1])
 *    MERGES      12 bytes  struct tok_merge, ascending by (left, right)
 *    UNITS       uint32    256 initial ids of bytes, then 256 ids of "<0x00>" to "<0xFF>"
 *    ADDED       16 bytes  struct tok_added: `added_raw` that are matched before the normalizer, then
 *                          those matched after it; both ascending by their bytes
 *    STEPS       24 bytes  struct tok_step: normalizers, then pre-tokenizers, then decoders
 *    TEMPLATE    uint32    ids: `prefix` of them go before an encoded text, the rest after it
 *
 * This is version 1, BPE by merges. In version 2, struct tok_header_ext follows the header, with
 * more sections, which may be empty:
 *
 *    RANKS       uint32    KIND_SPM: one per id, the lowest is merged first
 *    SCORES      float64   KIND_UNIGRAM: log probability of each id
 *    TRIE_RUNS   uint32    KIND_UNIGRAM: nodes + 1; the children of node n are the nodes [RUNS[n], RUNS[n + 1]);
 *                          node 0 is the root
 *    TRIE_BYTES  uint8     the label of each node; ascending among siblings
 *    TRIE_IDS    uint32    the token that ends at each node, or TOK_NONE
 *    CHARSMAP    uint8     SentencePiece's precompiled normalisation rules: see charsmap_find()
 *
 * In a byte-level vocabulary (TOK_BYTE_LEVEL) tokens are stored as bytes, not in the byte alphabet
 * of the files, so text is never translated. Spellings outside the alphabet are stored as they are
 * and flagged TOK_LITERAL; likewise added tokens whose decoded bytes would not be UTF-8, such as
 * U+00FC.
 *
 * tokenizer_open() checks header, section bounds, steps, added tokens and template. Offsets and
 * ids in the large sections are checked on use by the functions below, so opening does not read
 * them. */
#pragma once

#include "base/base.h"
#include "base/err.h"

#define TOK_MAGIC "bmc-tok"
#define TOK_NONE  UINT32_MAX
#define TOK_SPACE "\xe2\x96\x81" /* U+2581, SentencePiece's space */

enum {
    TOK_VERSION = 1,
    TOK_VERSION_EXT = 2,
    TOK_MAX_STEPS = 32, /* maximum per list of steps */
    TOK_MAX_PATTERN = 16 << 10,
    TOK_MAX_ADDED_BYTES = 4 << 10,
    TOK_MAX_PIECE = 4 << 10, /* maximum bytes of a token of KIND_SPM or KIND_UNIGRAM */
    TOK_MAX_PROBES = 64,     /* maximum slots of HASH probed in a lookup */
};

enum tok_section {
    SECTION_TEXT,
    SECTION_TOKENS,
    SECTION_FLAGS,
    SECTION_HASH,
    SECTION_MERGE_RUNS,
    SECTION_MERGES,
    SECTION_UNITS,
    SECTION_ADDED,
    SECTION_STEPS,
    SECTION_TEMPLATE,
    SECTION_RANKS, /* this and the next ones are in struct tok_header_ext */
    SECTION_SCORES,
    SECTION_TRIE_RUNS,
    SECTION_TRIE_BYTES,
    SECTION_TRIE_IDS,
    SECTION_CHARSMAP,
    SECTION_COUNT,
    SECTIONS_IN_HEADER = SECTION_RANKS,
    SECTIONS_IN_EXT = SECTION_COUNT - SECTIONS_IN_HEADER,
};

/* Tokenizer models: see tok_model.h. */
enum tok_kind {
    KIND_BPE,     /* BPE by ranked merges */
    KIND_SPM,     /* SentencePiece's BPE: best score first */
    KIND_UNIGRAM, /* segmentation with the maximum sum of scores */
    /* longest match first in words; tokens that begin a word are stored with U+2581 before them, those that
     * continue one without "##" */
    KIND_WORDPIECE,
    KIND_COUNT,
};

/* Bits of tok_header.flags. */
enum tok_option {
    TOK_BYTE_LEVEL = 1,
    TOK_BYTE_FALLBACK = 2,
    TOK_FUSE_UNK = 4,
    TOK_IGNORE_MERGES = 8,
    /* the unknown token is not in the vocabulary: needing it is an error */
    TOK_UNK_MISSING = 16,
    TOK_F32_SCORES = 32, /* KIND_UNIGRAM: sums in f32, as in SentencePiece */
    TOK_HAS_UNUSED = 64, /* KIND_SPM: some tokens are TOK_UNUSED */
    TOK_WORDS = 128,     /* KIND_SPM: no token has a space (U+2581) after another character */
};

/* Bits of a token's element in section FLAGS. */
enum tok_flag {
    TOK_PRESENT = 1,
    TOK_MODEL = 2,   /* in the model's vocabulary, not only an added token */
    TOK_LITERAL = 4, /* byte-level: stored as spelled, not decoded from the byte alphabet */
    TOK_SPECIAL = 8,
    TOK_UNUSED = 16, /* KIND_SPM: merges may form it, but it is split again at the end */
    TOK_BYTE = 32,   /* a byte token such as "<0xE2>": never matches its spelling */
    TOK_USER = 64,   /* KIND_UNIGRAM: user-defined, not normalised */
};

/* Bits of tok_added.flags. */
enum tok_added_flag {
    TOK_LSTRIP = 1,
    TOK_RSTRIP = 2,
    TOK_SINGLE_WORD = 4,
};

/* Lists of steps, in storage order. */
enum tok_list { LIST_NORMALIZER, LIST_PRETOKENIZER, LIST_DECODER, LIST_COUNT };

/* Operations of steps, to which components of tokenizer.json such as Metaspace are compiled. a and
 * b are strings, the operands in struct tok_step. */
enum tok_step_kind {
    NORMALIZE_UNICODE,         /* option: enum tok_form */
    NORMALIZE_PREPEND,         /* prepends `a`, unless the text is empty */
    NORMALIZE_REPLACE,         /* replaces text a by b */
    NORMALIZE_REPLACE_PATTERN, /* replaces matches of pattern a by b */
    SPLIT_PREFIX,              /* prepends `a` to pre-tokens without it; option: enum tok_prefix */
    SPLIT_REPLACE,             /* replaces text a by b in every pre-token */
    SPLIT_PATTERN,             /* splits at pattern a; option: enum tok_behavior */
    SPLIT_TEXT,                /* splits at text a; option: enum tok_behavior */
    SPLIT_DIGITS,              /* splits at digits; option: enum tok_behavior */
    DECODE_REPLACE,            /* replaces text a by b in every token */
    DECODE_METASPACE,          /* replaces text a by b, in the first token by nothing if option is 1 */
    DECODE_BYTES,              /* replaces "<0xE2>" by that byte */
    DECODE_STRIP,              /* drops byte a at the start; option: enum tok_strip_start */
    /* Numbers are stored in files: new ones are appended, whatever their list. */
    NORMALIZE_CHARSMAP,      /* charsmap, as in the tokenizers library */
    NORMALIZE_SENTENCEPIECE, /* SentencePiece's normalizer; option: enum tok_sentencepiece */
    NORMALIZE_STRIP,         /* strips white space at the ends; option: enum tok_strip */
    NORMALIZE_STRIP_ACCENTS, /* drops combining marks */
    NORMALIZE_LOWERCASE,
    SPLIT_PUNCTUATION,        /* splits at punctuation; option: enum tok_behavior */
    SPLIT_TO_BYTE_ALPHABET,   /* converts bytes to the byte alphabet, for steps that expect it */
    SPLIT_FROM_BYTE_ALPHABET, /* converts the byte alphabet to bytes; must be the last step */
    STEP_KINDS,
};

/* Option of NORMALIZE_UNICODE. */
enum tok_form { FORM_NFC, FORM_NFD, FORM_NFKC, FORM_NFKD, FORM_COUNT };

/* Options of NORMALIZE_SENTENCEPIECE. */
enum tok_sentencepiece {
    SENTENCEPIECE_PREFIX = 1,   /* prepend a space */
    SENTENCEPIECE_COLLAPSE = 2, /* strip and collapse spaces */
};

/* Option of DECODE_STRIP: strip only the first token, or all tokens until some text was output. */
enum tok_strip_start { STRIP_OF_FIRST, STRIP_UNTIL_TEXT };

/* Options of NORMALIZE_STRIP. */
enum tok_strip { STRIP_LEFT = 1, STRIP_RIGHT = 2 };

/* Option of SPLIT_PREFIX: every pre-token, or only the one at the start of the input. */
enum tok_prefix { PREFIX_ALWAYS, PREFIX_FIRST };

/* Option of the splitting steps: what becomes of matches. One of these, plus SPLIT_INVERT if
 * matches and the text between them change roles. */
enum tok_behavior {
    BEHAVIOR_ISOLATED,
    BEHAVIOR_REMOVED,
    BEHAVIOR_MERGED_WITH_PREVIOUS,
    BEHAVIOR_MERGED_WITH_NEXT,
    BEHAVIOR_CONTIGUOUS,
    BEHAVIOR_COUNT,
    SPLIT_INVERT = 256,
};

struct tok_section_ref {
    uint64_t offset; /* from the start of the block, in bytes */
    uint64_t count;  /* elements */
};

struct tok_header {
    char magic[8];
    uint32_t version, flags;
    uint64_t size; /* bytes of the block */
    uint32_t ids;
    uint32_t unk; /* id of the unknown token, or TOK_NONE */
    uint32_t added_raw, prefix;
    uint32_t steps[LIST_COUNT];
    uint32_t kind; /* enum tok_kind; 0 in version 1 */
    struct tok_section_ref section[SECTIONS_IN_HEADER];
};

struct tok_header_ext {
    uint32_t longest, zero; /* longest: bytes of the longest token, at most TOK_MAX_PIECE */
    double unk_score;       /* KIND_UNIGRAM: score of a character without a token */
    struct tok_section_ref section[SECTIONS_IN_EXT];
};

struct tok_merge {
    uint32_t right, rank, result;
};

struct tok_added {
    uint32_t id, flags, text, len;
};

struct tok_step {
    uint32_t kind, option;
    uint32_t a, a_len;
    uint32_t b, b_len;
};

/* Bytes of one element of each section. */
static const size_t tok_element_size[SECTION_COUNT] = {
    1, 4, 1, 4, 4, sizeof(struct tok_merge), 4, sizeof(struct tok_added), sizeof(struct tok_step), 4, 4,
    8, 4, 1, 4, 1,
};

struct patterns;

/* An opened tokenizer. Constant after tokenizer_open(), except `patterns`, which is thread-safe. */
struct tokenizer {
    enum tok_kind kind;
    uint32_t flags, ids, unk;
    const char *text;
    size_t text_len;
    const uint32_t *token_at;
    const uint8_t *token_flags;
    const uint32_t *slot;
    size_t slots;
    const uint32_t *run_at;
    const struct tok_merge *merge;
    size_t merges;
    const uint32_t *unit;      /* [256]: initial BPE id of each byte */
    const uint32_t *byte_unit; /* [256]: id of "<0x..>" for each byte */
    const struct tok_added *added[2];
    size_t added_count[2];
    uint8_t added_start[2][256]; /* by list and byte: 1 if an added token starts with the byte */
    const struct tok_step *steps[LIST_COUNT];
    size_t step_count[LIST_COUNT];
    const uint32_t *template_ids;
    size_t template_count, prefix;
    const uint32_t *rank;
    const double *score;
    double unk_score;
    size_t longest;
    const uint32_t *trie_run;
    const char *trie_byte;
    const uint32_t *trie_id;
    size_t trie_nodes;
    const char *charsmap;
    size_t charsmap_bytes;
    bool starts_with_text;  /* decoding: tokens count as the first until some text was output */
    bool bytes_stand_alone; /* decoding: every invalid byte becomes a U+FFFD of its own */
    struct patterns *patterns;
};

/* The bytes of token `id`; empty if there is no such id or its offsets are damaged. */
static inline const char *tok_bytes(const struct tokenizer *tok, uint32_t id, size_t *len)
{
    *len = 0;
    if (id >= tok->ids)
        return "";
    uint32_t start = tok->token_at[id], end = tok->token_at[id + 1];
    if (start > end || end > tok->text_len)
        return "";
    *len = end - start;
    return tok->text + start;
}

static inline uint8_t tok_flags(const struct tokenizer *tok, uint32_t id)
{
    return id < tok->ids ? tok->token_flags[id] : 0;
}

/* Hash of a token's bytes; linear probing starts at its low bits. `literal` distinguishes tokens
 * with equal bytes of which one is TOK_LITERAL. */
static inline uint32_t tok_hash(const char *bytes, size_t len, bool literal)
{
    uint64_t hash = literal ? 0x9ae16a3b2f90404fULL : 0xcbf29ce484222325ULL;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3ULL;
    hash ^= hash >> 32;
    return (uint32_t)(hash * 0x9e3779b97f4a7c15ULL >> 32);
}

/* True if the text starts with TOK_SPACE. */
static inline bool tok_is_space(const char *text, size_t len)
{
    return len >= 3 && memcmp(text, TOK_SPACE, 3) == 0;
}

/* The child of trie node `node` (< trie_nodes) with label `byte`, or TOK_NONE. */
static inline uint32_t tok_trie_child(const struct tokenizer *tok, uint32_t node, char byte)
{
    uint32_t start = tok->trie_run[node], end = tok->trie_run[node + 1];
    if (start >= end || end > tok->trie_nodes)
        return TOK_NONE;
    const char *found = memchr(tok->trie_byte + start, byte, end - start);
    return found ? (uint32_t)(found - tok->trie_byte) : TOK_NONE;
}

/* The id of the token with these bytes and all flags of `wanted`, or TOK_NONE. `literal`: a token
 * that is TOK_LITERAL; else one that is not. */
uint32_t tok_lookup(const struct tokenizer *tok, const char *bytes, size_t len, bool literal,
                    uint8_t wanted);

/* Validates tokenizer tables and sets the pointers of `tok`, which must be zeroed, into them.
 * tok->patterns is left to the caller. */
int tok_tables_open(struct tokenizer *tok, const void *blob, size_t size, struct err *err) MUST_USE;

/* The character (code point) that stands for a byte. */
static inline uint32_t byte_alphabet_letter(unsigned char byte)
{
    if (byte <= 32)
        return 256U + byte;
    if (byte >= 127 && byte <= 160)
        return 289U + (byte - 127U);
    return byte == 173 ? 323 : byte;
}

/* Decodes a spelling in the byte alphabet to bytes; false if a character is outside it. `out`
 * needs `len` bytes. */
bool byte_alphabet_decode(const char *spelling, size_t len, char *out, size_t *out_len);
