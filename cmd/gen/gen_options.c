/* Options of bmc-gen and bmc-spec: defaults, invalid combinations, parsing of values. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "cli.h"
#include "gen/gen.h"
#include "model/experts/expert_store.h"
#include "opt/opt.h"
#include "opt/opt_hint.h"

struct gen_options gen_defaults(void)
{
    return (struct gen_options){
        .request = {.n = GENERATE_NO_LIMIT},
        .context = -1,
        .sampling = sampling_not_given(),
        .mirostat = -1,
        .kv_type = -1,
        .prefix_cache_mb = SIZE_MAX,
        .length_penalty = NAN,
        .early_stopping = -1,
        .format = -1,
        .pooling = -1,
        .parallelism = -1,
    };
}

static bool violates(const struct usage_rule *rule, uint64_t given)
{
    const uint64_t some = given & rule->option;
    const bool others = (given & rule->other) != 0;
    switch (rule->relation) {
    case EXCLUSIVE: return (some & (some - 1)) != 0 || (some && others);
    case EXCLUDES: return some && others;
    case NEEDS: return some && !others;
    }
    return false;
}

void usage_check(const struct program *program, uint64_t given, const struct usage_rule *rules,
                 size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (violates(&rules[i], given))
            opt_usage_error(program, "%s", rules[i].sentence);
}

/* Bits of options, and of conditions, that rules refer to. */
enum {
    PROMPT = 1 << 0,
    FROM_FILE = 1 << 1,
    PROMPT_IDS = 1 << 2,
    JSONL = 1 << 3,
    UNORDERED_LOGPROBS = 1 << 4,
    LENIENT = 1 << 5,
    ECHO_IDS = 1 << 6,
    SYSTEM_SPECIAL = 1 << 7,
    CHAT = 1 << 8,
    NO_PARSE_SPECIAL = 1 << 9,
    PARSE_SPECIAL = 1 << 10,
    DETOKENIZE = 1 << 11,
    BY_DATA = 1 << 12,
    LAYERS = 1 << 13,
    BY_PIPELINE = 1 << 14,
    MICRO_BATCHES = 1 << 15,
    LOAD_KV = 1 << 16,
    SAVE_KV = 1 << 17,
    PROMPT_CACHE = 1 << 18,
    OTHER_JOB = 1 << 19, /* --score, --tokenize, --detokenize or --embed */
    RETRIEVAL_HEADS = 1 << 20,
    KV_HEADWISE = 1 << 21,
    CONTEXT_SHIFT = 1 << 22, /* --context-shift recompute */
    KEEP = 1 << 23,
    KV_SHIFT = 1 << 24,
    BEAMS = 1 << 25,
    BEAM_SETTINGS = 1 << 26,
    SAMPLED = 1 << 27, /* temperature above 0; not with --jsonl, whose requests may set their own */
    CHAT_FORMAT = 1 << 28,
    CONSTRAINT = 1 << 29,
    PREFIX_CACHE = 1 << 30,
};
#define INTERACTIVE   (UINT64_C(1) << 31) /* enumerators are of type int */
#define SPECIAL       (UINT64_C(1) << 32)
#define WITHOUT_TEXT  (UINT64_C(1) << 33)
#define FROM_STANDARD (UINT64_C(1) << 34)

static const struct usage_rule rules[] = {
    {PROMPT | FROM_FILE | PROMPT_IDS, EXCLUSIVE, 0,
     "-p, -f and --prompt-ids exclude each other, except that -f - appends standard input to -p"},
    {JSONL, EXCLUDES, PROMPT, "--jsonl reads its prompts from -f or standard input, not from -p"},
    {JSONL | OTHER_JOB, EXCLUDES, PROMPT_IDS, "--prompt-ids goes with plain generation only"},
    {UNORDERED_LOGPROBS, NEEDS, JSONL, "--unordered and --logprobs go with --jsonl"},
    {LENIENT, NEEDS, JSONL, "--lenient goes with --jsonl"},
    {JSONL | OTHER_JOB, EXCLUDES, ECHO_IDS, "--echo and --ids go with plain generation only"},
    {SYSTEM_SPECIAL, NEEDS, CHAT | JSONL, "--system and --parse-special go with --chat"},
    {CHAT_FORMAT, NEEDS, CHAT | JSONL, "--chat-template and --chat-template-kwargs go with --chat"},
    {NO_PARSE_SPECIAL, EXCLUDES, PARSE_SPECIAL | PROMPT_IDS | DETOKENIZE,
     "--no-parse-special goes with text, and not with --parse-special"},
    {CHAT, EXCLUDES, PROMPT_IDS, "--chat needs a prompt as text, not --prompt-ids"},
    {SPECIAL, EXCLUDES, WITHOUT_TEXT,
     "--special (-sp) goes with generated text and --detokenize: not with --ids, --score, --embed, "
     "--tokenize and --render-chat"},
    {BY_DATA, NEEDS, JSONL, "--parallelism data goes with --jsonl"},
    {LAYERS, NEEDS, BY_PIPELINE, "--layers goes with --parallelism pipeline"},
    {MICRO_BATCHES, NEEDS, BY_PIPELINE, "--micro-batches goes with --parallelism pipeline"},
    {LOAD_KV | SAVE_KV | PROMPT_CACHE, EXCLUDES, OTHER_JOB,
     "--load-kv, --save-kv and --prompt-cache go with generation only"},
    {PROMPT_CACHE, EXCLUDES, LOAD_KV | SAVE_KV, "--prompt-cache excludes --load-kv and --save-kv"},
    {PROMPT_CACHE, EXCLUDES, JSONL, "--prompt-cache goes with plain generation only"},
    {RETRIEVAL_HEADS, NEEDS, KV_HEADWISE, "--retrieval-heads goes with --kv headwise"},
    {RETRIEVAL_HEADS, EXCLUDES, SAVE_KV | PROMPT_CACHE,
     "--retrieval-heads goes neither with --save-kv nor with --prompt-cache: streaming heads drop KV "
     "entries"},
    {PREFIX_CACHE, EXCLUDES, OTHER_JOB, "--prefix-cache goes with generation only"},
    {RETRIEVAL_HEADS, EXCLUDES, PREFIX_CACHE,
     "--retrieval-heads excludes --prefix-cache: streaming heads drop KV entries"},
    {CONTEXT_SHIFT | KEEP, NEEDS, KV_SHIFT, "--context-shift and --keep go with --kv shift"},
    {KEEP, NEEDS, CONTEXT_SHIFT, "--keep goes with --context-shift recompute"},
    {CONTEXT_SHIFT, EXCLUDES, BEAMS | SAVE_KV | PROMPT_CACHE,
     "--context-shift recompute goes neither with --beams nor with snapshots"},
    {CONSTRAINT, EXCLUDES, OTHER_JOB,
     "--json-schema, --grammar, --regex and --choice go with generation only"},
    {INTERACTIVE, NEEDS, CHAT, "-i (--interactive) goes with --chat"},
    {INTERACTIVE, EXCLUDES,
     JSONL | OTHER_JOB | BEAMS | ECHO_IDS | PROMPT_CACHE | FROM_FILE | FROM_STANDARD,
     "-i is a conversation at a terminal: it excludes --jsonl, --score, --tokenize, --detokenize, "
     "--beams, --echo, --ids, --prompt-cache and -f (there, /file reads a file)"},
    {BEAM_SETTINGS, NEEDS, BEAMS, "--n-best, --length-penalty and --early-stopping go with --beams"},
    {BEAMS, EXCLUDES, OTHER_JOB, "--beams goes with generation only"},
    {BEAMS, EXCLUDES, SAMPLED, "--beams is a deterministic search: it needs temperature 0"},
    {BEAMS, EXCLUDES, SAVE_KV | PROMPT_CACHE,
     "--beams excludes --save-kv and --prompt-cache: a search leaves no single sequence to resume"},
};

static bool begins(const char *text, const char *word)
{
    return text && strncmp(text, word, strlen(word)) == 0;
}

static uint64_t options_given(const struct gen_options *o)
{
    const bool is_standard = o->file && strcmp(o->file, "-") == 0;
    const struct {
        bool given;
        uint64_t option;
    } table[] = {
        {o->prompt, PROMPT},
        {o->file && !(o->prompt && is_standard), FROM_FILE},
        {is_standard, FROM_STANDARD},
        {o->prompt_ids, PROMPT_IDS},
        {o->jsonl, JSONL},
        {o->unordered || o->request.logprobs, UNORDERED_LOGPROBS},
        {o->lenient, LENIENT},
        {o->echo || o->ids, ECHO_IDS},
        {o->system || o->parse_special, SYSTEM_SPECIAL},
        {o->chat, CHAT},
        {o->interactive, INTERACTIVE},
        {o->json_schema || o->grammar || o->regex || o->choice, CONSTRAINT},
        {o->chat_format || o->template_kwargs, CHAT_FORMAT},
        {o->no_parse_special, NO_PARSE_SPECIAL},
        {o->parse_special, PARSE_SPECIAL},
        {o->detokenize, DETOKENIZE},
        {o->request.keep_special, SPECIAL},
        {o->ids || o->score || o->embed || o->tokenize || o->render_chat, WITHOUT_TEXT},
        {o->parallelism == DATA_PARALLEL, BY_DATA},
        {o->layers, LAYERS},
        {o->parallelism == PIPELINE_PARALLEL, BY_PIPELINE},
        {o->micro_batches, MICRO_BATCHES},
        {o->load_kv, LOAD_KV},
        {o->save_kv, SAVE_KV},
        {o->prompt_cache, PROMPT_CACHE},
        {o->score || o->tokenize || o->detokenize || o->embed, OTHER_JOB},
        {o->prefix_cache, PREFIX_CACHE},
        {o->heads, RETRIEVAL_HEADS},
        {begins(o->kv, "headwise"), KV_HEADWISE},
        {o->shift, CONTEXT_SHIFT},
        {o->keep, KEEP},
        {begins(o->kv, "shift"), KV_SHIFT},
        {o->beams, BEAMS},
        {o->sampling.temp > 0 && !o->jsonl, SAMPLED},
        {o->n_best || !isnan(o->length_penalty) || o->early_stopping >= 0, BEAM_SETTINGS},
    };
    uint64_t given = 0;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        given |= table[i].given ? table[i].option : 0;
    return given;
}

/* Malformed lists are usage errors; ids beyond the vocabulary are found once the model is open. */
static void check_ids(const struct program *program, const char *text)
{
    struct ids ids = {0};
    struct err err;
    errno = 0; /* out of memory: the list may be valid; it is parsed again later */
    if (text && ids_parse(&ids, text, &err) < 0 && errno != ENOMEM)
        opt_usage_error(program, "--prompt-ids: %s", err.text);
    ids_release(&ids);
}

void gen_check_usage(const struct program *program, const struct gen_options *o,
                     const struct operands *operands)
{
    if (operands->n)
        opt_unexpected(program, operands->text[0], o->numa, "a prompt is given with -p");
    for (size_t i = 0; i < o->stop.n; i++)
        if (!*o->stop.text[i])
            opt_usage_error(program, "--stop: the text is empty");
    usage_check(program, options_given(o), rules, ARRAY_LEN(rules));
    if (o->beams && o->n_best > o->beams)
        opt_usage_error(program, "--n-best %zu of %zu beams: a search has no more results than beams",
                        o->n_best, o->beams);
    if ((o->json_schema != NULL) + (o->grammar != NULL) + (o->regex != NULL) + (o->choice != NULL) > 1)
        opt_usage_error(program, "--json-schema, --grammar, --regex and --choice exclude each other");
    if (o->layers)
        opt_no_empty_entry(program, "--layers", o->layers);
    struct expert_store_options store;
    struct err err;
    if (o->experts && expert_store_parse(&store, o->experts, &err) < 0)
        opt_usage_error(program, "%s", err.text);
    opt_cores_check(program, o->cpu_mask, o->cores);
    if (o->experts && (o->hugepages || o->numa))
        opt_usage_error(program, "--experts reads weights from the file, %s copies all of it",
                        o->numa ? "--numa" : "--hugepages");
    if (o->numa && o->threads_batch && o->threads_batch != o->threads)
        opt_usage_error(program,
                        "--numa places weights for one number of threads: give -t and -tb the same");
    if (o->experts && (o->mlock || o->save_imatrix))
        opt_usage_error(program,
                        "--experts goes neither with --mlock, which keeps all weights in memory, "
                        "nor with --save-imatrix");
    if (o->lora.n && o->save_imatrix)
        opt_usage_error(program, "--save-imatrix measures the model itself: leave --lora out");
    opt_names_check(program, o->kv, o->attn, o->isa, o->precision);
    check_ids(program, o->prompt_ids);
}

/* The byte that two hexadecimal digits denote; 0 if they are not digits. */
static int hex_byte(const char *at)
{
    const char digits[3] = {at[0], at[0] ? at[1] : 0, 0};
    return strspn(digits, "0123456789abcdefABCDEF") == 2 ? (int)strtol(digits, NULL, 16) : 0;
}

/* Replaces C escapes in place, except unknown ones and \x00. */
static void unescape(char *text)
{
    static const char from[] = "ntr\\\"", to[] = "\n\t\r\\\"";
    char *out = text;
    for (const char *at = text; *at;) {
        const char *known = at[0] == '\\' && at[1] ? strchr(from, at[1]) : NULL;
        if (known) {
            *out++ = to[known - from];
            at += 2;
        } else if (at[0] == '\\' && at[1] == 'x' && hex_byte(at + 2)) {
            *out++ = (char)hex_byte(at + 2);
            at += 4;
        } else {
            *out++ = *at++;
        }
    }
    *out = 0;
}

/* Parses ID=BIAS; a bias is a number or -inf. */
static bool parse_bias(const char *text, struct logit_bias *bias)
{
    char word[24];
    const char *value = strchr(text, '=');
    const size_t len = value ? (size_t)(value - text) : sizeof word;
    size_t id;
    double number = LOGIT_BIAS_NEVER;
    if (len >= sizeof word)
        return false;
    memcpy(word, text, len);
    word[len] = 0;
    if (!parse_size(word, &id) || id > UINT32_MAX ||
        (strcmp(value + 1, "-inf") != 0 &&
         !(parse_double(value + 1, &number) && fabs(number) <= LOGIT_BIAS_MOST)))
        return false;
    *bias = (struct logit_bias){(uint32_t)id, (float)number};
    return true;
}

static void parse_biases(const struct program *program, struct gen_options *o)
{
    const size_t n = o->logit_bias.n;
    struct err err;
    struct logit_bias *bias = n ? mem_alloc(n, sizeof *bias) : NULL;
    if (n && !bias) {
        err_no_memory(&err, "%zu biases", n);
        exit(cli_fail(program->name, &err));
    }
    for (size_t i = 0; i < n; i++) {
        if (!parse_bias(o->logit_bias.text[i], &bias[i]))
            opt_usage_error(program,
                            "--logit-bias \"%s\": ID=BIAS is expected, a token id and a number from "
                            "-%g to %g or -inf",
                            o->logit_bias.text[i], LOGIT_BIAS_MOST, LOGIT_BIAS_MOST);
        for (size_t j = 0; j < i; j++)
            if (bias[j].id == bias[i].id)
                opt_usage_error(program,
                                "--logit-bias: token %u has two biases: give one of \"%s\" and \"%s\"",
                                bias[i].id, o->logit_bias.text[j], o->logit_bias.text[i]);
    }
    o->sampling.bias = bias;
    o->sampling.n_biases = n;
}

void gen_finish_options(const struct program *program, struct gen_options *o)
{
    struct err err;
    parse_biases(program, o);
    if (o->cache_type)
        o->kv_type = opt_cache_type(program, o->cache_type, &o->kv_scales);
    if (o->mirostat >= 0)
        o->sampling.mirostat = o->mirostat > 0 ? 2 : 0;
    if (o->samplers && sampler_order_parse(o->samplers, &o->sampling.order, &err) < 0)
        opt_usage_error(program, "--samplers: %s", err.text);
    o->format = o->format < 0 ? TABLE_TEXT : o->format;
    for (size_t i = 0; o->escape && i < o->stop.n; i++)
        unescape(o->stop.text[i]);
    if (o->escape && o->prompt)
        unescape((char *)(uintptr_t)o->prompt);
}

void gen_release_options(struct gen_options *o)
{
    free(o->stop.text);
    free(o->lora.text);
    free(o->dry_breaker.text);
    free(o->logit_bias.text);
    free((void *)(uintptr_t)o->sampling.bias);
}
