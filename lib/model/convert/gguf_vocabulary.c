/* Tokenizer tables as GGUF has them: spelled tokens with types and scores, merges, the name of the pre-tokenizer. */
#include "model/convert/gguf_metadata.h"

#include "base/mem.h"
#include "format/gguf/gguf_pre.h"
#include "format/gguf/gguf_tokenizer.h"
#include "text/chat/chat.h"
#include "text/pattern.h"
#include "text/tokenizer/tok_tables.h"
#include "text/tokenizer/tokenizer.h"
#include "text/utf8.h"

struct token_writer {
    struct gguf_values *values;
    const struct gguf_out *out;
    const struct tokenizer *tok;
    struct chat chat;
    size_t n;             /* tokens: rows of the embedding */
    unsigned char *added; /* [n]: it is an added token */
    struct buf spelling;  /* scratch */
};

static int refuse(const struct token_writer *v, const char *what, struct err *err)
{
    return err_set(err, "%s: its tokenizer has no form in GGUF: %s", v->out->name, what);
}

/* Sets v->spelling to a token as its file spelled it, which byte-level vocabularies do in the byte alphabet. */
static int spell(struct token_writer *v, uint32_t id, struct err *err)
{
    size_t len;
    const char *bytes = tok_bytes(v->tok, id, &len);
    const uint8_t flags = tok_flags(v->tok, id);
    buf_clear(&v->spelling);
    if (!flags)
        return buf_addf(&v->spelling, err, "[PAD%u]", id);
    if (!(v->tok->flags & TOK_BYTE_LEVEL) || flags & TOK_LITERAL)
        return buf_add(&v->spelling, bytes, len, err);
    for (size_t i = 0; i < len; i++) {
        char letter[8];
        const size_t n = (size_t)utf8_write(byte_alphabet_letter((unsigned char)bytes[i]), letter);
        if (buf_add(&v->spelling, letter, n, err) < 0)
            return -1;
    }
    return 0;
}

static enum gguf_token type_of(const struct token_writer *v, uint32_t id)
{
    const uint8_t flags = tok_flags(v->tok, id);
    if (!flags || flags & TOK_UNUSED)
        return UNUSED_TOKEN;
    if (flags & TOK_BYTE)
        return BYTE_TOKEN;
    if (v->tok->kind == KIND_SPM && id == v->tok->unk)
        return UNKNOWN_TOKEN;
    if (flags & TOK_SPECIAL)
        return CONTROL_TOKEN;
    return v->added[id] ? USER_TOKEN : NORMAL_TOKEN;
}

/* Only the order of scores counts, and the lowest one of normal tokens, from which that of unknown characters follows. */
static void put_scores(struct token_writer *v)
{
    const double below_lowest = 10;
    uint32_t last = 0;
    for (size_t id = 0; id < v->n; id++) {
        const uint32_t rank = id < v->tok->ids ? v->tok->rank[id] : TOK_NONE;
        if (rank != TOK_NONE && rank > last && type_of(v, (uint32_t)id) == NORMAL_TOKEN)
            last = rank;
    }
    gguf_put_array(v->values, "tokenizer.ggml.scores", GGUF_F32, v->n);
    for (size_t id = 0; id < v->n; id++) {
        const uint32_t rank = id < v->tok->ids ? v->tok->rank[id] : TOK_NONE;
        gguf_add_real(v->values, rank == TOK_NONE
                                     ? 0
                                     : v->tok->unk_score + below_lowest + (double)last - (double)rank);
    }
}

static int put_tokens(struct token_writer *v, struct err *err)
{
    struct gguf_values *values = v->values;
    gguf_put_array(values, "tokenizer.ggml.tokens", GGUF_STRING, v->n);
    for (size_t id = 0; id < v->n; id++) {
        if (spell(v, (uint32_t)id, err) < 0)
            return -1;
        gguf_add_text(values, buf_text(&v->spelling), v->spelling.len);
    }
    gguf_put_array(values, "tokenizer.ggml.token_type", GGUF_I32, v->n);
    for (size_t id = 0; id < v->n; id++)
        gguf_add_integer(values, GGUF_I32, type_of(v, (uint32_t)id));
    if (v->tok->kind != KIND_SPM)
        return 0;
    put_scores(v);
    return 0;
}

struct ranked_merge {
    uint32_t left, right, rank;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked_merge *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int put_merges(struct token_writer *v, struct err *err)
{
    const struct tokenizer *tok = v->tok;
    struct ranked_merge *merge = mem_alloc(tok->merges + 1, sizeof *merge);
    size_t n = 0;
    int rc = merge ? 0 : err_no_memory(err, "%zu merges", tok->merges);
    for (uint32_t left = 0; left < tok->ids && rc == 0; left++)
        for (size_t i = tok->run_at[left];
             i < tok->run_at[left + 1] && i < tok->merges && n < tok->merges; i++)
            merge[n++] = (struct ranked_merge){left, tok->merge[i].right, tok->merge[i].rank};
    if (rc == 0) {
        qsort(merge, n, sizeof *merge, by_rank);
        gguf_put_array(v->values, "tokenizer.ggml.merges", GGUF_STRING, n);
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct buf text = {0};
        rc = spell(v, merge[i].left, err);
        if (rc == 0)
            rc = buf_addf(&text, err, "%s ", buf_text(&v->spelling));
        if (rc == 0)
            rc = spell(v, merge[i].right, err);
        if (rc == 0)
            rc = buf_add(&text, buf_text(&v->spelling), v->spelling.len, err);
        if (rc == 0)
            gguf_add_text(v->values, text.data, text.len);
        buf_release(&text);
    }
    free(merge);
    return rc;
}

/* ---- pre-tokenizers ---- */

/* True if a step splits as a regular expression does: 1; 0: it does not; -1: error. */
static int is_split(const struct tokenizer *tok, const struct tok_step *step, const char *regex,
                    struct err *err)
{
    struct buf text = {0};
    if (step->kind == SPLIT_DIGITS)
        return strcmp(regex, step->option == BEHAVIOR_ISOLATED ? "\\p{N}" : "\\p{N}+") == 0;
    if (step->kind != SPLIT_PATTERN || step->option != BEHAVIOR_ISOLATED)
        return 0;
    if (pattern_translate(regex, strlen(regex), &text, err) < 0)
        return -1;
    const int same = text.len == step->a_len && memcmp(text.data, tok->text + step->a, text.len) == 0;
    buf_release(&text);
    return same;
}

/* True if the tokenizer splits and normalises texts as a pre-tokenizer of GGUF does, as is_split(). */
static int is_pre(const struct tokenizer *tok, const struct gguf_pre *pre, struct err *err)
{
    size_t n = 0;
    const struct tok_step *first = tok->steps[LIST_NORMALIZER];
    const bool nfc = tok->step_count[LIST_NORMALIZER] == 1 && first->kind == NORMALIZE_UNICODE &&
                     first->option == FORM_NFC;
    while (n < GGUF_PRE_REGEXES && pre->regex[n])
        n++;
    if (n != tok->step_count[LIST_PRETOKENIZER] || nfc != (bool)(pre->flags & PRE_NFC) ||
        tok->step_count[LIST_NORMALIZER] > nfc ||
        !(tok->flags & TOK_IGNORE_MERGES) != !(pre->flags & PRE_IGNORE_MERGES))
        return 0;
    for (size_t i = 0; i < n; i++) {
        const int same = is_split(tok, &tok->steps[LIST_PRETOKENIZER][i], pre->regex[i], err);
        if (same != 1)
            return same;
    }
    return 1;
}

static int put_pre(struct token_writer *v, struct err *err)
{
    const struct gguf_pre *pre;
    for (size_t i = 0; (pre = gguf_pre_nth(i)); i++) {
        const int same = is_pre(v->tok, pre, err);
        if (same < 0)
            return -1;
        if (same)
            return gguf_put_text(v->values, "tokenizer.ggml.pre", pre->names, strcspn(pre->names, " ")),
                   0;
    }
    return refuse(v, "no pre-tokenizer of GGUF splits texts as it does", err);
}

/* ---- special tokens ---- */

static void put_flag(struct token_writer *v, const char *key, bool flag)
{
    gguf_put_integer(v->values, key, GGUF_BOOL, flag);
}

static int put_specials(struct token_writer *v, struct err *err)
{
    static const struct {
        const char *key, *token;
    } named[] = {
        {"tokenizer.ggml.unknown_token_id", "unk_token"},
        {"tokenizer.ggml.padding_token_id", "pad_token"},
        {"tokenizer.ggml.seperator_token_id", "sep_token"},
        {"tokenizer.ggml.cls_token_id", "cls_token"},
        {"tokenizer.ggml.mask_token_id", "mask_token"},
    };
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    const struct tokenizer *tok = v->tok;
    const struct config *config = v->out->config;
    const size_t prefix = tok->prefix, suffix = tok->template_count - prefix;
    const char *bos = chat_token(&v->chat, "bos_token");
    const int64_t start = prefix        ? (int64_t)tok->template_ids[0]
                          : bos && *bos ? tokenizer_find(tok, bos, strlen(bos))
                                        : -1;
    if (prefix > 1 || suffix > 1)
        return refuse(v, "it adds more than one token before or after a text", err);
    if (suffix && (!config->n_eos || config->eos[0] != tok->template_ids[prefix]))
        return refuse(v, "it ends texts by a token that is not the first EOS token", err);
    if (config->n_eos > ARRAY_LEN(ends))
        return refuse(v, "it has more EOS ids than 3", err);
    if (start >= 0)
        gguf_put_integer(v->values, "tokenizer.ggml.bos_token_id", GGUF_U32, start);
    for (size_t i = 0; i < config->n_eos; i++)
        gguf_put_integer(v->values, ends[i], GGUF_U32, config->eos[i]);
    for (size_t i = 0; i < ARRAY_LEN(named); i++) {
        const char *text = chat_token(&v->chat, named[i].token);
        int64_t id = text && *text ? tokenizer_find(tok, text, strlen(text)) : -1;
        if (i == 0 && tok->unk != TOK_NONE)
            id = tok->unk;
        if (id >= 0)
            gguf_put_integer(v->values, named[i].key, GGUF_U32, id);
    }
    put_flag(v, "tokenizer.ggml.add_bos_token", prefix);
    put_flag(v, "tokenizer.ggml.add_eos_token", suffix);
    return 0;
}

/* ---- what chats have ---- */

static int put_templates(struct token_writer *v, struct err *err)
{
    for (size_t i = 0; i < v->chat.n_jinja; i++) {
        const struct chat_named *one = &v->chat.jinja[i];
        AUTO(buf_release) struct buf key = {0};
        const bool main = strcmp(one->name, "default") == 0;
        if (buf_addf(&key, err, "tokenizer.chat_template%s%s", main ? "" : ".", main ? "" : one->name) <
            0)
            return -1;
        gguf_put_text(v->values, key.data, one->text, strlen(one->text));
    }
    return 0;
}

static void put_sampling(struct token_writer *v)
{
    for (size_t i = 0; i < SAMPLING_COUNT_OF_PARAMS; i++) {
        char key[64];
        if (!v->chat.sampling.given[i] || !sampling_params[i].gguf)
            continue;
        snprintf(key, sizeof key, "general.sampling.%s", sampling_params[i].gguf);
        const double value = v->chat.sampling.value[i];
        if (i == SAMPLING_top_k || i == SAMPLING_repeat_last_n)
            gguf_put_integer(v->values, key, GGUF_I32, (int64_t)value);
        else
            gguf_put_real(v->values, key, value);
    }
}

/* ---- the whole ---- */

static int put_model(struct token_writer *v, struct err *err)
{
    const struct tokenizer *tok = v->tok;
    static const char space[] = "tokenizer.ggml.add_space_prefix";
    const bool bytes = tok->flags & TOK_BYTE_LEVEL;
    if (tok->kind == KIND_UNIGRAM)
        return refuse(v, "Unigram models are not written", err);
    if (tok->kind == KIND_SPM) {
        const struct tok_step *step = tok->steps[LIST_NORMALIZER];
        if (tok->step_count[LIST_NORMALIZER] != 1 || step->kind != NORMALIZE_SENTENCEPIECE ||
            tok->charsmap_bytes)
            return refuse(v, "it normalises texts", err);
        gguf_put_text(v->values, "tokenizer.ggml.model", "llama", strlen("llama"));
        gguf_put_text(v->values, "tokenizer.ggml.pre", "default", strlen("default"));
        put_flag(v, space, step->option & SENTENCEPIECE_PREFIX);
        put_flag(v, "tokenizer.ggml.remove_extra_whitespaces", step->option & SENTENCEPIECE_COLLAPSE);
        return put_tokens(v, err);
    }
    if (!bytes && strcmp(v->out->config->family, "gemma4") != 0)
        return refuse(v, "BPE without bytes; convert a source that has its tokenizer.model", err);
    const char *name = bytes ? "gpt2" : "gemma4";
    gguf_put_text(v->values, "tokenizer.ggml.model", name, strlen(name));
    if (bytes && put_pre(v, err) < 0)
        return -1;
    return put_tokens(v, err) < 0 ? -1 : put_merges(v, err);
}

static int put_all(struct token_writer *v, struct err *err)
{
    v->added = mem_zalloc(v->n, 1);
    if (!v->added)
        return err_no_memory(err, "%zu tokens", v->n);
    for (size_t list = 0; list < ARRAY_LEN(v->tok->added); list++)
        for (size_t i = 0; i < v->tok->added_count[list]; i++)
            if (v->tok->added[list][i].id < v->n)
                v->added[v->tok->added[list][i].id] = 1;
    if (put_model(v, err) < 0 || put_specials(v, err) < 0 || put_templates(v, err) < 0)
        return -1;
    put_sampling(v);
    return v->values->failed ? -1 : 0;
}

int gguf_vocabulary(struct gguf_values *values, const struct gguf_out *out, struct err *err)
{
    const struct bmc_plan *plan = out->plan;
    struct tokenizer *tok = NULL;
    struct token_writer v = {.values = values, .out = out, .n = out->config->vocab};
    int rc = tokenizer_open(&tok, plan->tokenizer, plan->tokenizer_bytes, err);
    v.tok = tok;
    if (rc == 0 && plan->chat_bytes)
        rc = chat_parse(&v.chat, plan->chat, plan->chat_bytes, out->name, err);
    if (rc == 0) {
        v.n = size_max(v.n, tokenizer_vocab(tok));
        rc = put_all(&v, err);
        chat_release(&v.chat);
    }
    tokenizer_free(tok);
    free(v.added);
    buf_release(&v.spelling);
    return rc;
}
