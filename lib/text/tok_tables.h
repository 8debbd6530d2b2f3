/* The block of look-up tables, byte by byte, and the opened tokenizer that points into it.
 *
 * All integers are little-endian. The block starts with `struct tok_header`; each section starts at a
 * multiple of 8, in the order of `enum tok_section`, and holds `count` elements:
 *
 *   TEXT        uint8     all strings: the tokens' bytes in order of id, then those of steps and patterns
 *   TOKENS      uint32    ids + 1 offsets into TEXT: token i is [TOKENS[i], TOKENS[i + 1])
 *   FLAGS       uint8     one per id, enum tok_flag
 *   HASH        uint32    a power of two of slots: an id, or TOK_NONE; see tok_hash()
 *   MERGE_RUNS  uint32    ids + 1 indices into MERGES: pairs with left id i are [RUNS[i], RUNS[i + 1])
 *   MERGES      12 bytes  struct tok_merge, ascending by (left, right)
 *   UNITS       uint32    256 ids of what a byte starts as, then 256 ids of "<0x00>" to "<0xFF>"
 *   ADDED       16 bytes  struct tok_added: `added_raw` that are looked for before the normalizer, then
 *                         those that are looked for after it; both ascending by their bytes
 *   STEPS       24 bytes  struct tok_step: normalizers, then pre-tokenizers, then decoders
 *   TEMPLATE    uint32    ids: `prefix` of them go in front of an encoded text, the rest behind it
 *
 * That is all of version 1, byte-pair encoding by merges. In version 2, a `struct tok_more` stands behind
 * the header, with the places of more sections, which may be empty:
 *
 *   RANKS       uint32    KIND_SPM: one per id, the lowest is joined first
 *   SCORES      float64   KIND_UNIGRAM: one per id, the logarithm of its probability
 *   TRIE_RUNS   uint32    KIND_UNIGRAM: nodes + 1; the children of node n are the nodes [RUNS[n], RUNS[n + 1]).
 *                         Node 0 is the root; a node stands for the bytes on the way to it
 *   TRIE_BYTES  uint8     the last byte of each node; those of one node's children ascend
 *   TRIE_IDS    uint32    the token that ends at each node, or TOK_NONE
 *   CHARSMAP    uint8     SentencePiece's precompiled normalizer: see charsmap.h
 *
 * In a byte-level vocabulary (TOK_BYTE_LEVEL) a token's bytes are what it stands for, not the letters
 * that the files spell it with: the text is never translated into that alphabet, neither on the way in
 * nor on the way out. Spellings outside the alphabet are kept as they are and flagged TOK_LITERAL;
 * so are added tokens whose letters would be bytes that are no UTF-8, such as U+00FC.
 *
 * tokenizer_open() checks the header, the sections' bounds, steps, added tokens and template. Offsets
 * and ids inside the large sections are checked where they are used, by the functions below: nothing of
 * them needs to be read at open. */
#ifndef BMC_TOK_TABLES_H
#define BMC_TOK_TABLES_H

#include <string.h>

#include "base/err.h"

#define TOK_MAGIC "bmc-tok"
#define TOK_NONE  UINT32_MAX

enum {
    TOK_VERSION = 1,
    TOK_VERSION_MORE = 2,          /* with a struct tok_more */
    TOK_MAX_STEPS = 32,            /* of one kind */
    TOK_MAX_PATTERN = 16 << 10,    /* bytes of a regular expression */
    TOK_MAX_ADDED_BYTES = 4 << 10, /* bytes of one added token */
    TOK_MAX_PIECE = 4 << 10,       /* bytes of one token that KIND_SPM or KIND_UNIGRAM can make */
    TOK_MAX_PROBES = 64,           /* slots that a look-up may have to see */
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
    SECTION_RANKS, /* the first of struct tok_more */
    SECTION_SCORES,
    SECTION_TRIE_RUNS,
    SECTION_TRIE_BYTES,
    SECTION_TRIE_IDS,
    SECTION_CHARSMAP,
    SECTION_COUNT,
    SECTIONS_IN_HEADER = SECTION_RANKS,
    SECTIONS_MORE = SECTION_COUNT - SECTIONS_IN_HEADER,
};

/* What turns a piece of text into ids: see tok_model.h. */
enum tok_kind {
    KIND_BPE,     /* merges */
    KIND_SPM,     /* SentencePiece's BPE: what joins to a token of the best score is joined first */
    KIND_UNIGRAM, /* tokens whose scores add up to the most */
    KIND_COUNT,
};

/* header.flags */
enum tok_option {
    TOK_BYTE_LEVEL = 1,
    TOK_BYTE_FALLBACK = 2,
    TOK_FUSE_UNK = 4,
    TOK_IGNORE_MERGES = 8,
    TOK_UNK_MISSING =
        16,          /* an unknown token is named but is not in the vocabulary: using it is an error */
    TOK_SINGLE = 32, /* KIND_UNIGRAM: sums are rounded to float, as SentencePiece's are */
    TOK_HAS_UNUSED = 64, /* KIND_SPM: there are tokens with TOK_UNUSED */
    TOK_WORDS = 128,     /* KIND_SPM: no token has a space (U+2581) behind another character */
};

/* FLAGS */
enum tok_flag {
    TOK_PRESENT = 1,
    TOK_MODEL = 2, /* in the vocabulary of the model, not only an added token */
    TOK_LITERAL =
        4, /* byte-level: its bytes are its spelling, which is not (or not meant) in the alphabet */
    TOK_SPECIAL = 8,
    TOK_UNUSED = 16, /* KIND_SPM: taken apart again at the end */
    TOK_BYTE = 32,   /* stands for a byte only, not for its spelling "<0xE2>" */
    TOK_USER = 64,   /* KIND_UNIGRAM: defined by the user, so the charsmap leaves it alone */
};

/* struct tok_added.flags */
enum tok_added_flag {
    TOK_LSTRIP = 1,
    TOK_RSTRIP = 2,
    TOK_SINGLE_WORD = 4,
};

/* Lists of steps, in the order of their storage. */
enum tok_list { LIST_NORMALIZER, LIST_PRETOKENIZER, LIST_DECODER, LIST_COUNT };

/* What a step does. ByteLevel, Metaspace and the like are compiled into these. */
enum tok_step_kind {
    NORMALIZE_UNICODE,         /* option: see below */
    NORMALIZE_PREPEND,         /* a in front, unless the text is empty */
    NORMALIZE_REPLACE,         /* text a becomes b */
    NORMALIZE_REPLACE_PATTERN, /* matches of pattern a become b */
    SPLIT_PREFIX,     /* a in front of every piece that does not start with it; option: see below */
    SPLIT_REPLACE,    /* text a becomes b in every piece */
    SPLIT_PATTERN,    /* splits at pattern a; option: behaviour */
    SPLIT_TEXT,       /* splits at text a; option: behaviour */
    SPLIT_DIGITS,     /* splits at digits; option: behaviour */
    DECODE_REPLACE,   /* text a becomes b in every token */
    DECODE_METASPACE, /* text a becomes b, in the first token nothing when option is 1 */
    DECODE_BYTES,     /* "<0xE2>" becomes that byte */
    DECODE_STRIP,     /* one byte a at the very start is dropped; option: enum tok_strip_start */
    /* Numbers are stored: what is newer stands behind what is older, whatever its list. */
    NORMALIZE_CHARSMAP,      /* by the charsmap, as the library of tokenizer.json does it */
    NORMALIZE_SENTENCEPIECE, /* all that SentencePiece does; option: enum tok_sentencepiece */
    NORMALIZE_STRIP,         /* white space at the ends; option: enum tok_strip */
    NORMALIZE_STRIP_ACCENTS, /* combining marks are dropped */
    NORMALIZE_LOWERCASE,
    SPLIT_PUNCTUATION, /* splits at punctuation; option: behaviour */
    SPLIT_LETTERS,     /* bytes become letters (letters.h), for steps that look at those */
    SPLIT_BYTES,       /* and bytes again; nothing follows */
    STEP_KINDS,
};

/* Option of NORMALIZE_UNICODE. */
enum tok_form { FORM_NFC, FORM_NFD, FORM_NFKC, FORM_NFKD, FORM_COUNT };

/* Options of NORMALIZE_SENTENCEPIECE. */
enum tok_sentencepiece {
    SENTENCEPIECE_PREFIX = 1,   /* a space in front */
    SENTENCEPIECE_COLLAPSE = 2, /* no spaces at the ends, and single ones between */
};

/* Option of DECODE_STRIP: of the first token, or of all until there is some text. */
enum tok_strip_start { STRIP_OF_FIRST, STRIP_UNTIL_TEXT };

/* Options of NORMALIZE_STRIP. */
enum tok_strip { STRIP_LEFT = 1, STRIP_RIGHT = 2 };

/* Option of SPLIT_PREFIX. */
enum tok_prefix { PREFIX_ALWAYS, PREFIX_FIRST };

/* Option of the splitting steps: one of these, plus SPLIT_INVERT. */
enum tok_behavior {
    BEHAVIOR_ISOLATED,
    BEHAVIOR_REMOVED,
    BEHAVIOR_MERGED_WITH_PREVIOUS,
    BEHAVIOR_MERGED_WITH_NEXT,
    BEHAVIOR_CONTIGUOUS,
    BEHAVIOR_COUNT,
    SPLIT_INVERT = 256,
};

struct tok_place {
    uint64_t offset; /* from the start of the block */
    uint64_t count;  /* elements */
};

struct tok_header {
    char magic[8];
    uint32_t version;
    uint32_t flags;
    uint64_t size; /* bytes of the whole block */
    uint32_t ids;
    uint32_t unk; /* id of the unknown token, or TOK_NONE */
    uint32_t added_raw;
    uint32_t prefix;
    uint32_t steps[LIST_COUNT];
    uint32_t kind; /* enum tok_kind; 0 in version 1 */
    struct tok_place section[SECTIONS_IN_HEADER];
};

struct tok_more {
    uint32_t longest; /* bytes of the longest token that the model can make, at most TOK_MAX_PIECE */
    uint32_t zero;
    double unk_score; /* KIND_UNIGRAM: of a character that no token covers */
    struct tok_place section[SECTIONS_MORE];
};

struct tok_merge {
    uint32_t right;
    uint32_t rank;
    uint32_t result;
};

struct tok_added {
    uint32_t id;
    uint32_t flags;
    uint32_t text;
    uint32_t len;
};

struct tok_step {
    uint32_t kind;
    uint32_t option;
    uint32_t a, a_len;
    uint32_t b, b_len;
};

/* Bytes of one element of each section. */
static const size_t tok_element_size[SECTION_COUNT] = {
    1, 4, 1, 4, 4, sizeof(struct tok_merge), 4, sizeof(struct tok_added), sizeof(struct tok_step), 4, 4,
    8, 4, 1, 4, 1,
};

struct patterns;

/* An opened block. Constant after tokenizer_open(), but for `patterns`, which guards itself. */
struct tokenizer {
    enum tok_kind kind;
    uint32_t flags;
    uint32_t ids;
    uint32_t unk;
    const char *text;
    size_t text_len;
    const uint32_t *token_at;
    const uint8_t *token_flags;
    const uint32_t *slot;
    size_t slots;
    const uint32_t *run_at;
    const struct tok_merge *merge;
    size_t merges;
    const uint32_t *unit;      /* byte -> first id */
    const uint32_t *byte_unit; /* byte -> id of "<0x..>" */
    const struct tok_added *added[2];
    size_t added_count[2];
    uint8_t added_start[2][256]; /* 1 where an added token starts with this byte */
    const struct tok_step *steps[LIST_COUNT];
    size_t step_count[LIST_COUNT];
    const uint32_t *template_ids;
    size_t template_count;
    size_t prefix;
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
    bool starts_with_text;  /* tokens count as the first until there is some text */
    bool bytes_stand_alone; /* a byte token that completes no character is one U+FFFD of its own */
    struct patterns *patterns;
};

/* Bytes of a token; an absent or damaged one has none. */
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

/* The hash of a token's bytes; the low bits choose the first slot, the next slots follow upwards.
 * `literal` keeps apart two tokens with the same bytes of which one is TOK_LITERAL. */
static inline uint32_t tok_hash(const char *bytes, size_t len, bool literal)
{
    uint64_t hash = literal ? 0x9ae16a3b2f90404fULL : 0xcbf29ce484222325ULL;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3ULL;
    hash ^= hash >> 32;
    return (uint32_t)(hash * 0x9e3779b97f4a7c15ULL >> 32);
}

/* Whether a text begins with SentencePiece's sign for a space, U+2581. */
static inline bool tok_is_space(const char *text, size_t len)
{
    return len >= 3 && memcmp(text, "\xe2\x96\x81", 3) == 0;
}

/* The child of a node below trie_nodes at a byte, or TOK_NONE. */
static inline uint32_t tok_trie_child(const struct tokenizer *tok, uint32_t node, char byte)
{
    uint32_t start = tok->trie_run[node], end = tok->trie_run[node + 1];
    if (start >= end || end > tok->trie_nodes)
        return TOK_NONE;
    const char *found = memchr(tok->trie_byte + start, byte, end - start);
    return found ? (uint32_t)(found - tok->trie_byte) : TOK_NONE;
}

/* The id with these bytes, among those that have all flags in `wanted`, or TOK_NONE. */
uint32_t tok_lookup(const struct tokenizer *tok, const char *bytes, size_t len, bool literal,
                    uint8_t wanted);

/* Checks a block and fills in what points into it; `tok` is zero-initialised, and the rest of it is
 * the caller's (patterns). */
int tok_tables_open(struct tokenizer *tok, const void *blob, size_t size, struct err *err) MUST_USE;

#endif
