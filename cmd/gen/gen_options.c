/* Options of bmc-gen and bmc-spec: defaults, invalid combinations, parsing of values. */
#include "base/cgroup.h"
#include "base/number.h"
#include "base/text_util.h"
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
        .prefix_cache_mb = SIZE_MAX,
        .gpu_layers = SIZE_MAX,
        .length_penalty = NAN,
        .early_stopping = -1,
        .format = -1,
        .pooling = -1,
        .answer = {.budget = GENERATE_NO_LIMIT},
        .reasoning = -1,
        .parallelism = -1,
    };
}

static const char hex_digits[] = "0123456789abcdefABCDEF";

/* ---- rules ---- */

/* Whether a word of a rule holds: a condition, or an option that is given, with that value if the word has one; if `typed`, on
 * the command line. */
static bool holds(const struct usage *u, const char *word, size_t len, bool typed)
{
    const char *equals = memchr(word, '=', len);
    const size_t name_len = equals ? (size_t)(equals - word) : len;
    const struct usage_condition *c = u->conditions;
    while (c->word && (strlen(c->word) != len || memcmp(c->word, word, len) != 0))
        c++;
    if (c->word)
        return c->holds;
    const struct opt *opt = opt_find_exact(u->program, word, name_len, true);
    if (!opt || !u->operands->given[opt - u->program->opts] ||
        (typed && u->operands->configured[opt - u->program->opts]))
        return false;
    if (!equals)
        return true;
    const void *at = (const char *)u->options + opt->at;
    char value[32];
    snprintf(value, sizeof value, "%.*s", (int)(len - name_len - 1), equals + 1);
    return opt->kind == OPT_CHOICE ? *(const int *)at == (int)text_choice(opt_choices(opt), value)
                                   : strncmp(*(const char *const *)at, value, strlen(value)) == 0;
}

static size_t count_given(const struct usage *u, const char *words, bool typed)
{
    size_t n = 0;
    for (size_t len; *(words += strspn(words, " ")); words += len) {
        len = strcspn(words, " ");
        n += holds(u, words, len, typed);
    }
    return n;
}

static bool violates(const struct usage *u, const struct usage_rule *rule)
{
    const size_t n = count_given(u, rule->options, false);
    const bool others = n && count_given(u, rule->others, rule->relation == IGNORES);
    switch (rule->relation) {
    case EXCLUSIVE: return n > 1 || others;
    case EXCLUDES:
    case IGNORES: return others;
    case NEEDS: return n && !others;
    }
    return false;
}

/* Lists options as "--kv headwise, --a and --b", those given of which there are `given`, or all if it is 0; returns how many. */
static size_t list_options(const struct usage *u, const char *words, size_t given, bool typed,
                           const char *last, char *text, size_t size)
{
    size_t n = 0;
    for (size_t len; *(words += strspn(words, " ")); words += len) {
        len = strcspn(words, " ");
        if (given && !holds(u, words, len, typed))
            continue;
        const bool more = given ? n + 1 < given : words[len + strspn(words + len, " ")] != 0;
        const size_t at = strlen(text);
        snprintf(text + at, size - at, "%s--%.*s", n == 0 ? "" : more ? ", " : last, (int)len, words);
        for (char *equals = text + at; (equals = strchr(equals, '='));)
            *equals = ' ';
        n++;
    }
    return n;
}

static _Noreturn void refuse_usage(const struct usage *u, const struct usage_rule *rule)
{
    char options[256] = "", others[1024] = "";
    const bool typed = rule->relation == IGNORES;
    const size_t n = count_given(u, rule->options, false);
    const size_t m = rule->relation == NEEDS ? 0 : count_given(u, rule->others, typed);
    const bool one = list_options(u, rule->options, n, false, " and ", options, sizeof options) == 1;
    if (rule->relation == NEEDS || m)
        list_options(u, rule->others, m, typed, m ? " and " : " or ", others, sizeof others);
    if (rule->sentence)
        opt_usage_error(u->program, "%s", rule->sentence);
    if (rule->relation == EXCLUSIVE && !one)
        opt_usage_error(u->program, "%s exclude each other", options);
    if (typed)
        opt_usage_error(u->program, "%s %s no use for %s: leave %s out", options, one ? "has" : "have",
                        others, m == 1 ? "it" : "them");
    if (rule->relation == NEEDS)
        opt_usage_error(u->program, "%s %s with %s", options, one ? "goes" : "go", others);
    opt_usage_error(u->program, "%s %s %s", options, one ? "excludes" : "exclude", others);
}

void usage_check(const struct usage *u, const struct usage_rule *rules, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (violates(u, &rules[i]))
            refuse_usage(u, &rules[i]);
}

#define JOBS         "score tokenize detokenize embed rerank"
#define ANSWER_PARTS "reasoning reasoning-budget tool-choice no-parallel-tool-calls"
#define CONSTRAINTS  "json-schema grammar regex choice"

/* Options that are about generated tokens. */
#define SAMPLING_NAME_REAL(name)    name " "
#define SAMPLING_NAME_COUNT(name)   name " "
#define SAMPLING_NAME_TOKENS(name)  name " "
#define SAMPLING_NAME_VERSION(name) name " "
#define SAMPLING_NAME_ORDER(name)   name " "
#define SAMPLING_NAME_STATE(name)
#define SAMPLING_NAME(kind, field, name, alias, min, max, initial, gguf, generation, option, arg,      \
                      help)                                                                            \
    SAMPLING_NAME_##kind(option)
#define GENERATION                                                                                     \
    SAMPLING_PARAMS(SAMPLING_NAME)                                                                     \
    "predict dry-sequence-breaker logit-bias seed stop ignore-eos"

static const struct usage_rule rules[] = {
    {"prompt @file prompt-ids", EXCLUSIVE, "",
     "-p, -f and --prompt-ids exclude each other, except that -f - appends standard input to -p"},
    {"jsonl", EXCLUDES, "prompt", "--jsonl reads its prompts from -f or standard input, not from -p"},
    {"jsonl " JOBS, EXCLUDES, "prompt-ids", "--prompt-ids goes with plain generation only"},
    {"unordered logprobs openai", NEEDS, "jsonl", NULL},
    {"lenient", NEEDS, "jsonl", NULL},
    {"jsonl " JOBS, EXCLUDES, "echo ids", "--echo and --ids go with plain generation only"},
    {"system parse-special tools", NEEDS, "chat jsonl", NULL},
    {"tools", EXCLUDES, "ids beams", "--tools prints text and calls: not with --ids and --beams"},
    {"chat-template chat-template-kwargs", NEEDS, "chat jsonl", NULL},
    {ANSWER_PARTS, NEEDS, "chat jsonl", NULL},
    {"reasoning-budget-message", NEEDS, "reasoning-budget jsonl", NULL},
    {ANSWER_PARTS, EXCLUDES, "beams ids special render-chat " JOBS,
     "reasoning and tool calls are parts of a text: not of --beams, --ids, --special and other jobs"},
    {"no-parse-special", EXCLUDES, "parse-special prompt-ids detokenize",
     "--no-parse-special goes with text, and not with --parse-special"},
    {"chat", EXCLUDES, "prompt-ids", "--chat needs a prompt as text, not --prompt-ids"},
    {JOBS " render-chat list-sessions remove-session verify-receipt", IGNORES, GENERATION, NULL},
    {"special", EXCLUDES, "ids score embed rerank tokenize render-chat",
     "--special (-sp) goes with generated text and --detokenize: not with --ids, --score, --embed, "
     "--rerank, --tokenize and --render-chat"},
    {"parallelism=data", NEEDS, "jsonl", NULL},
    {"layers", NEEDS, "parallelism=pipeline", NULL},
    {"micro-batches", NEEDS, "parallelism=pipeline", NULL},
    {"load-kv save-kv prompt-cache", EXCLUDES, JOBS,
     "--load-kv, --save-kv and --prompt-cache go with generation only"},
    {"prompt-cache", EXCLUDES, "load-kv save-kv", NULL},
    {"prompt-cache", EXCLUDES, "jsonl", "--prompt-cache goes with plain generation only"},
    {"retrieval-heads", NEEDS, "kv=headwise", NULL},
    {"retrieval-heads", EXCLUDES, "save-kv prompt-cache",
     "--retrieval-heads goes neither with --save-kv nor with --prompt-cache: streaming heads drop KV "
     "entries"},
    {"prefix-cache", EXCLUDES, JOBS, "--prefix-cache goes with generation only"},
    {"retrieval-heads", EXCLUDES, "prefix-cache",
     "--retrieval-heads excludes --prefix-cache: streaming heads drop KV entries"},
    {"context-shift=recompute @keep", NEEDS, "kv=shift",
     "--context-shift and --keep go with --kv shift"},
    {"@keep", NEEDS, "context-shift=recompute", "--keep goes with --context-shift recompute"},
    {"context-shift=recompute", EXCLUDES, "beams save-kv prompt-cache",
     "--context-shift recompute goes neither with --beams nor with snapshots"},
    {CONSTRAINTS, EXCLUDES, JOBS,
     "--json-schema, --grammar, --regex and --choice go with generation only"},
    {CONSTRAINTS, EXCLUSIVE, "", NULL},
    {"interactive", NEEDS, "chat", "-i (--interactive) goes with --chat"},
    {"interactive", EXCLUDES, "jsonl beams echo ids prompt-cache file " JOBS,
     "-i is a conversation at a terminal: it excludes --jsonl, --score, --tokenize, --detokenize, "
     "--beams, --echo, --ids, --prompt-cache and -f (there, /file reads a file)"},
    {"session", NEEDS, "interactive", NULL},
    {"session", EXCLUDES, "load-kv", NULL},
    {"run-tools", NEEDS, "tools", NULL},
    {"run-tools", NEEDS, "interactive", "--run-tools goes with -i: a user agrees to each command"},
    {"n-best length-penalty early-stopping", NEEDS, "beams", NULL},
    {"beams", EXCLUDES, JOBS, "--beams goes with generation only"},
    {"beams", EXCLUDES, "@sampled", "--beams is a deterministic search: it needs temperature 0"},
    {"beams", EXCLUDES, "save-kv prompt-cache",
     "--beams excludes --save-kv and --prompt-cache: a search leaves no single sequence to resume"},
};

static void check_rules(const struct program *program, const struct gen_options *o,
                        const struct operands *operands)
{
    const bool appended = o->prompt && o->file && strcmp(o->file, "-") == 0;
    const struct usage_condition conditions[] = {
        {"jsonl", o->jsonl}, /* of a server always */
        {"@file", o->file && !appended},
        {"@keep", o->keep > 0},
        {"@sampled", o->sampling.temp > 0 && !o->jsonl}, /* whose requests may set their own */
        {NULL, false},
    };
    usage_check(&(struct usage){program, o, operands, conditions}, rules, ARRAY_LEN(rules));
}

/* Malformed lists are usage errors; ids beyond the vocabulary are found once the model is open. */
static void check_ids(const struct program *program, const char *text)
{
    AUTO(ids_release) struct ids ids = {0};
    struct err err;
    /* out of memory: the list may be valid; it is parsed again later */
    if (text && ids_parse(&ids, text, &err) < 0 && err.code != ERR_NO_MEMORY)
        opt_usage_error(program, "--prompt-ids: %s", err.text);
}

void gen_check_usage(const struct program *program, const struct gen_options *o,
                     const struct operands *operands)
{
    if (operands->n)
        opt_unexpected(program, operands->text[0], o->numa,
                       operands->n > 1 ? "a prompt of several words is quoted"
                                       : "a prompt is given with -p");
    for (size_t i = 0; i < o->stop.n; i++)
        if (!*o->stop.text[i])
            opt_usage_error(program, "--stop: the text is empty");
    for (size_t i = 0; i < o->lora.n; i++)
        if (!*o->lora.text[i])
            opt_usage_error(program, "--lora: the name is empty");
    check_rules(program, o, operands);
    if (o->beams && o->n_best > o->beams)
        opt_usage_error(program, "--n-best %zu of %zu beams: a search has no more results than beams",
                        o->n_best, o->beams);
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
    if (o->experts && o->mlock)
        opt_usage_error(program,
                        "--experts does not go with --mlock, which keeps all weights in memory");
    if (o->lora.n && o->save_imatrix)
        opt_usage_error(program, "--save-imatrix measures the model itself: leave --lora out");
    if (o->roofline && o->backend)
        opt_usage_error(program, "--roofline measures the CPU: leave --backend %s out",
                        backends[o->backend]->name);
    opt_device_check(program, operands, o->backend);
    opt_names_check(program, o->kv, o->attn, o->isa, o->precision);
    if (o->check_hash && (strlen(o->check_hash) != 16 || strspn(o->check_hash, hex_digits) != 16))
        opt_usage_error(program, "--check-hash \"%s\": 16 hexadecimal digits are expected",
                        o->check_hash);
    check_ids(program, o->prompt_ids);
}

/* The byte that two hexadecimal digits denote; 0 if they are not digits. */
static int hex_byte(const char *at)
{
    const char digits[3] = {at[0], at[0] ? at[1] : 0, 0};
    return strspn(digits, hex_digits) == 2 ? (int)strtol(digits, NULL, 16) : 0;
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

size_t gen_memory(const struct program *program, const struct gen_options *o)
{
    if (!o->memory)
        return 0;
    const size_t given = opt_bytes(program, "--memory", o->memory), left = cgroup_memory(""),
                 most = size_max(left - left / 4, 1);
    if (given > most && !o->quiet)
        cli_say(
            stderr,
            "%s: --memory %s: the control group of this process leaves %zu MiB; the cache gets %zu\n",
            program->name, o->memory, left >> 20, most >> 20);
    return size_min(given, most);
}

void gen_finish_options(const struct program *program, struct gen_options *o)
{
    struct err err;
    parse_biases(program, o);
    if (o->cache_kld && o->cache_type)
        opt_usage_error(program, "--cache-kld chooses the types of --cache-type: give one of them");
    o->kv_types = opt_cache_types(program, "--cache-type", o->cache_type, &o->kv_scales);
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
