/* bmc-gen: generate text, score it, tokenize it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/conf.h"
#include "base/file.h"
#include "base/threads.h"
#include "cli.h"
#include "gen.h"

#define AT(field) offsetof(struct gen_options, field)
/* clang-format off */
#define HEADING(text) {OPT_HEADING, text, NULL, NULL, NULL, 0, 0, 0, NULL, false}
#define FLAG(name, letters, field, help) {OPT_FLAG, name, letters, NULL, help, AT(field), 0, 0, NULL, false}
#define TEXT(name, letters, arg, field, help) {OPT_TEXT, name, letters, arg, help, AT(field), 0, 0, NULL, false}
#define PATH(name, letters, field, help) {OPT_TEXT, name, letters, "FILE", help, AT(field), 0, 0, NULL, true}
#define SIZE(name, letters, field, min, max, help) {OPT_SIZE, name, letters, "N", help, AT(field), min, max, NULL, false}
#define INT(name, letters, field, min, max, help) {OPT_INT, name, letters, "N", help, AT(field), min, max, NULL, false}
#define REAL(name, arg, field, min, max, help) {OPT_REAL, name, NULL, arg, help, AT(field), min, max, NULL, false}
#define CHOICE(name, arg, field, choices, help) {OPT_CHOICE, name, NULL, arg, help, AT(field), 0, 0, choices, false}
#define MANY 1e15

static const struct opt opts[] = {
    HEADING("Model and prompt"),
    PATH("model", "m", model, "the model file, made by bmc-convert (default: the model that came with the program)"),
    TEXT("prompt", "p", "TEXT", prompt, "the prompt"),
    PATH("file", "f", file, "read the prompt (or the JSON lines, or the text to score) from a file; - is standard input, which is also the default"),
    TEXT("prompt-ids", NULL, "IDS", prompt_ids, "the prompt as token ids, separated by blanks; no start token is added"),
    FLAG("escape", "e", escape, "in -p and --stop, read \\n, \\t, \\r, \\\\, \\\" and \\xHH as in C"),
    INT("predict", "n", n, -1, MANY, "tokens to generate; -1: until end-of-text, a stop string or a full context (default -1)"),
    INT("ctx-size", "c", context, 0, MANY, "context: prompt and generated tokens together; 0 is the model's (default: at most the model's, else the larger of 4096 and prompt + n, where -n -1 counts as 2048; with --jsonl the model's)"),
    HEADING("Sampling"),
    REAL("temp", "T", sampling.temp, -1e9, 1e9, "temperature; 0 or less takes the most likely token (default 0)"),
    {OPT_SIZE, "top-k", NULL, "K", "keep the K most likely tokens; 0 is off (default 40)", AT(sampling.top_k), 0, MANY, NULL, false},
    REAL("top-p", "P", sampling.top_p, 0, 1, "keep the most likely tokens until their probabilities reach P; 1 is off (default 0.95)"),
    REAL("min-p", "P", sampling.min_p, 0, 1, "keep tokens at least P times as likely as the best; 0 is off (default 0.05)"),
    REAL("repeat-penalty", "X", sampling.repeat_penalty, 1e-3, 1e3, "divide the logits of recent tokens; 1 is off (default 1)"),
    INT("repeat-last-n", NULL, repeat_last_n, -1, MANY, "how many recent tokens that means; -1 is all (default 64)"),
    INT("seed", "s", seed, -1, 1e19, "seed of the random numbers; -1 draws one, which the statistics tell (default 0, or that of the snapshot)"),
    {OPT_LIST, "stop", "r", "TEXT", "stop before this text; may be given again", AT(stop), 0, 0, NULL, false},
    FLAG("ignore-eos", NULL, ignore_eos, "go on past end-of-text tokens"),
    HEADING("Batches"),
    FLAG("jsonl", NULL, jsonl, "read a request per line, write a JSON object per line, in the same order"),
    SIZE("batch", "b", batch, 1, 65536, "sequences at a time (default 1, with --jsonl 8)"),
    FLAG("unordered", NULL, unordered, "with --jsonl, write each result as soon as it is there"),
    SIZE("logprobs", NULL, logprobs, 1, 1000, "with --jsonl, add the log-probabilities of the chosen and the N best tokens"),
    HEADING("Snapshots"),
    PATH("load-kv", NULL, load_kv, "go on from a snapshot; the prompt is new text behind it, and may be left out"),
    PATH("save-kv", NULL, save_kv, "write a snapshot at the end, to go on from"),
    PATH("prompt-cache", NULL, prompt_cache, "take the rows of the beginning that the prompt shares with this snapshot, and bring it up to date at the end"),
    HEADING("Other jobs"),
    FLAG("score", NULL, score, "print the log-probability of every token of a text, and the perplexity of the whole"),
    FLAG("tokenize", NULL, tokenize, "print ids and pieces of each line of a text"),
    FLAG("detokenize", NULL, detokenize, "read lines of ids, print their text"),
    HEADING("Output"),
    FLAG("echo", NULL, echo, "print the prompt before the generated text"),
    FLAG("ids", NULL, ids, "print token ids in place of text"),
    CHOICE("format", "FORMAT", format, TABLE_FORMATS, "how --score and --tokenize print: table, md, csv, json or jsonl (default table)"),
    PATH("stats", NULL, stats, "write the statistics of the run to this file, as one JSON object"),
    FLAG("quiet", "q", quiet, "no statistics on standard error"),
    HEADING("Cache and machine"),
    {OPT_TEXT, "kv", NULL, "POLICY", "cache policy: bmc, bmc:T=COUNT, bmc:r=ROWS, iterative, upfront, paged:16, paged:32, reserve (default: what the tuned profile says, else bmc)", AT(kv), 0, 0, "bmc|iterative|upfront|paged|reserve", false},
    CHOICE("alloc", "HOW", alloc, PAGES_ALLOCS, "how the cache's memory is had: malloc, mmap (4 KiB pages) or thp (huge pages) (default malloc)"),
    CHOICE("kv-type", "TYPE", kv_type, "f32|bf16", "type of the cached rows (default f32, or that of the snapshot)"),
    CHOICE("rows", "WHICH", rows, "policy|valid", "rows that attention multiplies: those the policy asks for, or only those that hold tokens (default policy)"),
    {OPT_TEXT, "attn", NULL, "BACKEND", "attention backend: fused or blas (default fused)", AT(attn), 0, 0, "fused|blas", false},
    {OPT_TEXT, "isa", NULL, "SET", "instruction set: blas, ref, avx2, avx512, bf16 or amx (default: BMC_ISA, else the last of these that the machine has)", AT(isa), 0, 0, "blas|ref|avx2|avx512|bf16|amx", false},
    {OPT_TEXT, "precision", NULL, "P", "how activations meet bf16 weights: f32 (weights are widened), bf16 (activations are rounded once), bf16x2 (each is the sum of two bf16 terms) (default bf16x2 on bf16 and amx, else f32)", AT(precision), 0, 0, "f32|bf16|bf16x2", false},
    PATH("profile", NULL, profile, "the tuned profile, made by bmc-tune, or none (default: bmc/profile in $XDG_CONFIG_HOME, else in ~/.config)"),
    SIZE("chunk", NULL, chunk, 1, 1 << 20, "prompt tokens computed at a time (default 512)"),
    SIZE("threads", "t", threads, 1, 4096, "threads (default: all cores that the process may use)"),
    SIZE("threads-batch", "tb", threads_batch, 1, 4096, "threads for prompts (default: as --threads)"),
    FLAG("mlock", NULL, mlock, "keep the model in memory"),
};
/* clang-format on */

static const char *const usage[] = {
    "[-m MODEL.bmc] -p TEXT [OPTION ...]",
    "[-m MODEL.bmc] --jsonl [-b N] < REQUESTS > RESULTS",
    "[-m MODEL.bmc] --score | --tokenize | --detokenize < TEXT",
    NULL,
};

const struct program gen_program = {"bmc-gen", "generate text with a language model", usage, opts,
                                    ARRAY_LEN(opts)};

/* ---- input ---- */

int gen_read_text(const struct gen_options *o, bool whole, struct buf *text, struct err *err)
{
    if (o->prompt)
        return buf_add(text, o->prompt, strlen(o->prompt), err);
    if (cli_read_all(o->file ? o->file : "-", text, err) < 0)
        return -1;
    if (!whole && text->len && text->data[text->len - 1] == '\n')
        text->data[--text->len] = 0;
    return 0;
}

/* Commas and brackets, too, so that a JSON list can be pasted. */
#define ID_BLANKS " \t\r\n,[]"

int gen_parse_ids(const char *text, struct ids *ids, struct err *err)
{
    char word[32];
    for (const char *at = text + strspn(text, ID_BLANKS); *at; at += strspn(at, ID_BLANKS)) {
        const size_t len = strcspn(at, ID_BLANKS);
        size_t id = SIZE_MAX;
        if (len < sizeof word) {
            memcpy(word, at, len);
            word[len] = 0;
        }
        if (len >= sizeof word || !parse_size(word, &id) || id > UINT32_MAX)
            return err_set(
                err, "\"%.*s\" is no token id; ids are whole numbers separated by blanks or commas",
                (int)size_min(len, 40), at);
        if (ids_add(ids, (uint32_t)id, err) < 0)
            return -1;
        at += len;
    }
    return 0;
}

/* The byte that two hexadecimal digits spell; 0 when they do not, or spell the end of a text. */
static int hex_byte(const char *at)
{
    const char digits[3] = {at[0], at[0] ? at[1] : 0, 0};
    return strspn(digits, "0123456789abcdefABCDEF") == 2 ? (int)strtol(digits, NULL, 16) : 0;
}

/* C escapes in place; anything else after a backslash stays as it is. */
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

/* ---- opening ---- */

/* The policy that was asked for, or that the tuned profile says; and the profile's T. */
static int open_policy(struct gen *gen, struct session_options *s, struct err *err)
{
    const struct gen_options *o = gen->options;
    const bool needed =
        !o->kv || o->profile || (kv_spec_parse(&s->kv, o->kv, err) == 0 && kv_spec_needs_T(&s->kv));
    if (needed && tuned_open(&gen->tuned, gen_program.name, o->profile, s->kernels->isa,
                             (enum pages_alloc)o->alloc, s->threads, err) < 0)
        return -1;
    const bool told = gen->tuned.found && gen->tuned.profile.policy[0];
    gen->policy_from = o->kv ? "option" : told ? "profile" : "default";
    if (kv_spec_parse(&s->kv, o->kv ? o->kv : tuned_policy(&gen->tuned), err) < 0)
        return -1;
    s->kv.tuner = tuned_for(&gen->tuned, s->attn->name, gen->model->config.heads);
    return 0;
}

int gen_open_session(struct gen *gen, size_t batch, size_t prompt_tokens, struct err *err)
{
    const struct gen_options *o = gen->options;
    const size_t limit = gen->model->config.context;
    struct session_options s = {
        .kv_type = gen->kv_type,
        .attn = attn_find(o->attn, err),
        .batch = batch,
        .chunk = o->chunk,
        .threads = o->threads ? (int)o->threads : threads_allowed(),
    };
    if (!s.attn)
        return -1;
    s.kernels = kernels_select(o->isa ? o->isa : getenv("BMC_ISA"), err);
    if (!s.kernels || precision_parse(&s.precision, o->precision, s.kernels, err) < 0 ||
        open_policy(gen, &s, err) < 0)
        return -1;
    s.kv.valid_rows_only = o->rows;
    s.kv.alloc = (enum pages_alloc)o->alloc;
    s.threads_prefill = o->threads_batch ? (int)o->threads_batch : s.threads;
    s.context = (size_t)o->context;
    if (o->context < 0)
        s.context = size_min(limit, size_max(4096, prompt_tokens + (o->n < 0 ? 2048 : (size_t)o->n)));
    else if (o->context == 0)
        s.context = limit;
    else if (s.context > limit)
        return err_set(err, "-c %zu is beyond the model's context of %zu", s.context, limit);
    s.chunk = size_min(s.chunk, size_max(s.context, 1));
    return session_open(&gen->session, gen->model, &s, err);
}

struct gen_request gen_request_of(const struct gen *gen)
{
    const struct gen_options *o = gen->options;
    return (struct gen_request){
        .seed = gen->seed,
        .stream = 0,
        .n = o->n < 0 ? GENERATE_NO_LIMIT : (size_t)o->n,
        .stop = o->stop.text,
        .n_stops = o->stop.n,
        .ignore_eos = o->ignore_eos,
        .to_go_on = o->save_kv != NULL,
        .logprobs = o->logprobs,
    };
}

/* The model that came with the program: grimm.bmc among the models. */
static int default_model(char *path, size_t size, struct err *err)
{
    char folder[8192];
    if (cli_models_dir(folder, sizeof folder, err) < 0)
        return err_prefix(err, "no -m given");
    snprintf(path, size, "%s/grimm.bmc", folder);
    if (!file_exists(path))
        return err_set(err, "no -m given, and the default model %s is not there; \"make\" converts it",
                       path);
    return 0;
}

static int open_model(struct gen *gen, struct err *err)
{
    char path[16384];
    const double start = clock_ms();
    if (!gen->options->model && default_model(path, sizeof path, err) < 0)
        return -1;
    if (model_open(&gen->model, gen->options->model ? gen->options->model : path, err) < 0)
        return -1;
    gen->load_ms = clock_ms() - start;
    return gen->options->mlock ? model_lock(gen->model, err) : 0;
}

static int choose_seed(struct gen *gen, struct err *err)
{
    gen->seed = gen->options->seed < 0 ? 0 : (uint64_t)gen->options->seed;
    if (gen->options->seed != -1)
        return 0;
    uint32_t drawn;
    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn)
        return err_errno(err, "no random seed can be drawn");
    gen->seed = drawn;
    return 0;
}

/* ---- main ---- */

/* Names that only the library knows: a wrong one is a usage error all the same. */
static void check_names(const struct gen_options *o)
{
    struct kv_spec spec;
    enum precision precision;
    struct err err;
    if ((o->kv && kv_spec_parse(&spec, o->kv, &err) < 0) || !attn_find(o->attn, &err) ||
        (o->isa && !kernels_select(o->isa, &err)) ||
        precision_parse(&precision, o->precision, *kernel_sets, &err) < 0)
        opt_usage_error(&gen_program, "%s", err.text);
}

static void check_usage(const struct gen_options *o, const struct operands *operands)
{
    const int jobs = o->jsonl + o->score + o->tokenize + o->detokenize;
    const int prompts = (o->prompt != NULL) + (o->file != NULL) + (o->prompt_ids != NULL);
    if (operands->n)
        opt_usage_error(&gen_program, "unexpected \"%s\": a prompt is given with -p",
                        operands->text[0]);
    if (jobs > 1)
        opt_usage_error(&gen_program,
                        "--jsonl, --score, --tokenize and --detokenize exclude each other");
    if (prompts > 1)
        opt_usage_error(&gen_program, "-p, -f and --prompt-ids exclude each other");
    if (jobs && o->prompt_ids)
        opt_usage_error(&gen_program, "--prompt-ids goes with plain generation only");
    if (o->jsonl && o->prompt)
        opt_usage_error(&gen_program,
                        "--jsonl reads its prompts from -f or standard input, not from -p");
    for (size_t i = 0; i < o->stop.n; i++)
        if (!*o->stop.text[i])
            opt_usage_error(&gen_program, "--stop: the text is empty");
    if (!o->jsonl && (o->unordered || o->logprobs))
        opt_usage_error(&gen_program, "--unordered and --logprobs go with --jsonl");
    if ((o->jsonl || o->score || o->tokenize || o->detokenize) && (o->echo || o->ids))
        opt_usage_error(&gen_program, "--echo and --ids go with plain generation only");
    if (o->format >= 0 && !o->score && !o->tokenize)
        opt_usage_error(&gen_program, "--format goes with --score and --tokenize");
    if ((o->tokenize || o->detokenize) && o->stats)
        opt_usage_error(&gen_program, "--stats has nothing to tell of --tokenize and --detokenize");
    gen_check_kv_usage(o);
    check_names(o);
    if (!prompts && (!o->load_kv || o->jsonl) && isatty(STDIN_FILENO))
        opt_usage_error(&gen_program, "no prompt: give -p TEXT, -f FILE, or text on standard input");
}

int main(int argc, char **argv)
{
    struct gen_options o = {
        .n = -1,
        .context = -1,
        .chunk = 512,
        .sampling = {NAN, SIZE_MAX, NAN, NAN, NAN, 0},
        .repeat_last_n = GEN_NOT_GIVEN,
        .seed = GEN_NOT_GIVEN,
        .kv_type = -1,
        .format = -1,
    };
    struct operands operands;
    struct err err;
    cli_begin(gen_program.name);
    opt_parse(&gen_program, argc, argv, &o, &operands);
    check_usage(&o, &operands);
    o.format = o.format < 0 ? TABLE_TEXT : o.format;
    for (size_t i = 0; o.escape && i < o.stop.n; i++)
        unescape(o.stop.text[i]);
    if (o.escape && o.prompt)
        unescape((char *)(uintptr_t)o.prompt);
    struct gen gen = {.options = &o};
    int rc = -1;
    if (choose_seed(&gen, &err) == 0 && gen_check_stats(&o, &err) == 0 && open_model(&gen, &err) == 0 &&
        gen_open_kv(&gen, &err) == 0) {
        gen.sampling = gen_sampling(&gen, 0);
        gen.seed = gen_seed(&gen, 0);
        if (o.jsonl)
            rc = gen_jsonl(&gen, &err);
        else if (o.score)
            rc = gen_score(&gen, &err);
        else if (o.tokenize)
            rc = gen_tokenize(&gen, &err);
        else if (o.detokenize)
            rc = gen_detokenize(&gen, &err);
        else
            rc = gen_text(&gen, &err);
    }
    if (gen.session.model)
        session_close(&gen.session);
    gen_close_kv(&gen);
    tuned_close(&gen.tuned);
    model_close(gen.model);
    free(o.stop.text);
    return cli_end(gen_program.name, rc < 0 ? cli_fail(gen_program.name, &err) : CLI_OK);
}
