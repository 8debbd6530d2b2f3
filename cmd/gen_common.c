/* What bmc-gen and bmc-spec share: reading prompts, opening models and sessions, checking options. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/number.h"
#include "base/threads.h"
#include "cli.h"
#include "gen.h"
#include "gen_split.h"
#include "isa.h"
#include "kv/kv_need.h"
#include "names.h"
#include "text/detok.h"

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

/* The text of the prompt's ids so far. The character that they end within comes with the ids that are generated; what
 * follows as `text_follows` cannot complete it. */
static int spell(const struct gen *gen, const struct ids *prompt, bool text_follows, struct buf *text,
                 struct err *err)
{
    struct detok detok;
    detok_init(&detok, gen->model->tok, false);
    for (size_t i = 0; i < prompt->len; i++)
        if (detok_add(&detok, prompt->id[i], text, err) < 0)
            return -1;
    return text_follows ? detok_finish(&detok, text, err) : 0;
}

/* The snapshot's one sequence comes before the prompt. */
static int read_snapshot(const struct gen *gen, struct gen_request *request, struct err *err)
{
    const struct snapshot *snapshot = gen->snapshot;
    if (snapshot->file.n_seqs > 1 && gen->options->beams)
        return err_set(err,
                       "%s: has %zu sequences, a search of %zu beams begins with one: --jsonl goes on "
                       "from each by its id",
                       snapshot->path, snapshot->file.n_seqs, gen->options->beams);
    if (snapshot->file.n_seqs > 1)
        return err_set(err, "%s: has %zu sequences; --jsonl continues them by their ids",
                       snapshot->path, snapshot->file.n_seqs);
    return gen_continue(gen, 0, request, err);
}

int gen_encode(const struct gen *gen, const char *text, size_t len, bool with_template,
               bool parse_special, struct ids *ids, struct err *err)
{
    const struct tokenizer *tok = gen->model->tok;
    return parse_special ? tokenizer_encode(tok, text, len, with_template, ids, err)
                         : tokenizer_encode_plain(tok, text, len, with_template, ids, err);
}

int gen_read_prompt(const struct gen *gen, struct ids *prompt, struct buf *text,
                    struct gen_request *request, struct err *err)
{
    const struct gen_options *o = gen->options;
    const bool goes_on = o->load_kv != NULL;
    const bool as_text = !o->prompt_ids && (!goes_on || o->prompt || o->file);
    struct buf more = {0};
    int rc = -1;
    *request = gen_request_of(gen, prompt);
    if (as_text)
        gen_hint_terminal(gen, "the prompt");
    if ((goes_on && read_snapshot(gen, request, err) < 0) ||
        (as_text && gen_read_text(o, false, &more, err) < 0))
        goto out;
    if (o->prompt_ids && ids_parse(prompt, o->prompt_ids, err) < 0) {
        err_prefix(err, "--prompt-ids");
        goto out;
    }
    if (spell(gen, prompt, more.len > 0, text, err) < 0 ||
        (more.len && !o->chat && buf_add(text, more.data, more.len, err) < 0))
        goto out;
    /* What goes on is tokenized by itself, without a start token. */
    const char *words = more.len ? more.data : "";
    const unsigned how = (goes_on ? CHAT_GOES_ON : 0) | (o->special ? CHAT_PARSES_SPECIAL : 0);
    if (as_text &&
        (o->chat ? gen_chat_user(gen, words, more.len, how, prompt, text, err)
                 : gen_encode(gen, words, more.len, !goes_on, !o->no_parse_special, prompt, err)) < 0)
        err_prefix(err, "prompt");
    else
        rc = 0;
out:
    buf_release(&more);
    return rc;
}

/* ---- output ---- */

int gen_put(const struct buf *text, struct err *err)
{
    if (text->len)
        fwrite(text->data, 1, text->len, stdout);
    return ferror(stdout) ? err_errno(err, "cannot write to standard output") : 0;
}

/* ---- opening ---- */

/* The policy that was asked for, or that the tuned profile says; and the profile's T. */
static int open_policy(struct gen *gen, struct session_options *s, struct err *err)
{
    const struct gen_options *o = gen->options;
    /* bmc-spec asks the profile for free rows, too. */
    const bool needed = gen->hooks || !o->kv || o->profile ||
                        (kv_spec_parse(&s->kv, o->kv, err) == 0 && kv_spec_needs_T(&s->kv));
    if (needed && tuned_open(&gen->tuned, gen->program->name, o->profile, s->kernels->isa,
                             (enum pages_alloc)o->alloc, s->threads, err) < 0)
        return -1;
    tuned_select(&gen->tuned, &gen->model->file.model_id);
    const char *told = tuned_policy(&gen->tuned);
    gen->policy_from = o->kv ? "option" : told ? "profile" : "default";
    if (kv_spec_parse(&s->kv, o->kv ? o->kv : told ? told : "bmc", err) < 0)
        return -1;
    s->kv.tuner = tuned_for(&gen->tuned, s->attn->name, gen->model->config.heads);
    return 0;
}

enum { SHARE_MB = 256, MOST_PLACES = 256 };

/* Places for the shortest requests that there are: how many of those that come are under way is decided then. */
static int count_places(const struct gen *gen, const struct session_options *s, size_t *places,
                        struct err *err)
{
    const struct config c = part_largest(gen->model);
    const struct kv_shape shape = {c.layers, c.kv_heads, c.head_dim, s->context, s->kv_type};
    const size_t width = size_max(1, gen->options->beams);
    struct kv *kv;
    if (kv_open(&kv, &s->kv, &shape, width, err) < 0)
        return -1;
    const size_t fit = kv_need_fits(kv, kv_need(kv, 1, 1, width), s->memory_bytes);
    *places = size_max(1, size_min(fit, MOST_PLACES));
    kv_close(kv);
    return 0;
}

/* Of ranks that follow each other each has a piece of a prompt to compute, where it has several. */
static size_t rows_of_chunk(const struct gen *gen)
{
    return gen->ranks && gen->split == SPLIT_LAYERS ? 64 : 512;
}

const struct kernels *gen_kernels(struct gen *gen, struct err *err)
{
    if (!gen->kernels)
        gen->kernels = isa_select(gen->options->isa, gen->options->profile, &gen->isa_from, err);
    return gen->kernels;
}

int gen_session_options(struct gen *gen, struct session_options *s, struct err *err)
{
    const struct gen_options *o = gen->options;
    *s = (struct session_options){
        .kv_type = gen->kv_type,
        .attn = attn_find(o->attn, err),
        .memory_bytes = o->memory_bytes,
        .chunk = o->chunk ? o->chunk : rows_of_chunk(gen),
        .share_bytes = (o->share_mb == SIZE_MAX ? SHARE_MB : o->share_mb) << 20,
        .threads = o->threads ? (int)o->threads : threads_allowed(),
        .lead = gen->leads ? &gen->lead : NULL,
    };
    if (!s->attn)
        return -1;
    s->kernels = gen_kernels(gen, err);
    if (!s->kernels ||
        precision_parse(&s->precision, o->precision, s->kernels,
                        model_few_bits(gen->model) || dtype_few_bits(gen->kv_type), err) < 0 ||
        open_policy(gen, s, err) < 0)
        return -1;
    s->kv.valid_rows_only = o->rows;
    s->kv.alloc = (enum pages_alloc)o->alloc;
    s->kv.sparse = gen->heads.is ? &gen->heads : NULL;
    s->threads_prefill = o->threads_batch ? (int)o->threads_batch : s->threads;
    return 0;
}

int gen_open_session(struct gen *gen, size_t batch, size_t prompt_tokens, struct err *err)
{
    const struct gen_options *o = gen->options;
    const size_t limit = gen->model->config.context;
    struct session_options s;
    if (gen_session_options(gen, &s, err) < 0)
        return -1;
    s.context = (size_t)o->context;
    if (o->context < 0)
        s.context = size_min(limit, size_max(4096, prompt_tokens + (o->n < 0 ? 2048 : (size_t)o->n)));
    else if (o->context == 0)
        s.context = limit;
    else if (s.context > limit)
        return err_set(err,
                       "-c %zu is beyond the %zu tokens of context that the model was made for: give "
                       "-c %zu or less, or -c 0 for all of it",
                       s.context, limit, limit);
    s.chunk = size_min(s.chunk, size_max(s.context, 1));
    if (batch == GEN_AS_FIT && count_places(gen, &s, &batch, err) < 0)
        return -1;
    s.batch = batch * size_max(1, o->beams);
    s.recompute = o->shift;
    s.keep = o->keep;
    if (s.keep && s.keep + 2 > s.context)
        return err_set(err, "--keep %zu: a context of %zu tokens keeps %zu at most", s.keep, s.context,
                       s.context - size_min(2, s.context));
    if (gen->hooks && gen->hooks->session(gen, &s, err) < 0)
        return -1;
    if (session_open(&gen->session, gen->model, &s, err) < 0 || gen_open_beams(gen, err) < 0 ||
        (gen->hooks && gen->hooks->opened(gen, err) < 0))
        return -1;
    return gen_open_pipe(gen, err);
}

struct gen_request gen_request_of(const struct gen *gen, struct ids *ids)
{
    const struct gen_options *o = gen->options;
    struct gen_request request = {
        .ids = ids,
        .seed = gen->seed,
        .n = o->n < 0 ? GENERATE_NO_LIMIT : (size_t)o->n,
        .stop = o->stop.text,
        .n_stops = o->stop.n,
        .ignore_eos = o->ignore_eos,
        .to_go_on = o->save_kv || o->prompt_cache,
        .logprobs = o->logprobs,
    };
    if (o->chat)
        gen_chat_request(gen, &request);
    return request;
}

int gen_open_model(struct gen *gen, struct err *err)
{
    char path[16384];
    const double start = clock_ms();
    if (!gen->options->model && cli_default_model("grimm", "-m", path, sizeof path, err) < 0)
        return -1;
    if (model_open(&gen->model, gen->options->model ? gen->options->model : path, err) < 0)
        return -1;
    gen->load_ms = clock_ms() - start;
    if (gen->options->chat && gen_open_chat(gen, err) < 0)
        return -1;
    return gen->options->mlock && !gen_splits_model(gen) ? model_lock(gen->model, err) : 0;
}

int gen_choose_seed(struct gen *gen, struct err *err)
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

void gen_close(struct gen *gen)
{
    gen_close_beams(gen);
    session_close(&gen->session);
    gen_close_kv(gen);
    gen_close_chat(gen);
    kv_sparse_release(&gen->heads);
    tuned_close(&gen->tuned);
    model_close(gen->model);
}

/* ---- options ---- */

struct gen_options gen_defaults(void)
{
    return (struct gen_options){
        .n = -1,
        .context = -1,
        .sampling = {.temp = NAN,
                     .top_k = SIZE_MAX,
                     .top_p = NAN,
                     .min_p = NAN,
                     .repeat_penalty = NAN,
                     .presence_penalty = NAN,
                     .frequency_penalty = NAN},
        .repeat_last_n = GEN_NOT_GIVEN,
        .seed = GEN_NOT_GIVEN,
        .kv_type = -1,
        .share_mb = SIZE_MAX,
        .length_penalty = NAN,
        .early_stopping = -1,
        .format = -1,
        .split = -1,
    };
}

/* What is no list of ids is wrong usage; one that is too large for the model's vocabulary, the model will tell. */
static void check_ids(const struct program *program, const char *text)
{
    struct ids ids = {0};
    struct err err;
    errno = 0; /* where memory is short the list may be right: it is read again */
    if (text && ids_parse(&ids, text, &err) < 0 && errno != ENOMEM)
        opt_usage_error(program, "--prompt-ids: %s", err.text);
    ids_release(&ids);
}

void gen_check_usage(const struct program *program, const struct gen_options *o,
                     const struct operands *operands)
{
    const int prompts = (o->prompt != NULL) + (o->file != NULL) + (o->prompt_ids != NULL);
    if (operands->n)
        opt_usage_error(program, "unexpected \"%s\": a prompt is given with -p", operands->text[0]);
    if (prompts > 1)
        opt_usage_error(program, "-p, -f and --prompt-ids exclude each other");
    if (o->jsonl && o->prompt)
        opt_usage_error(program, "--jsonl reads its prompts from -f or standard input, not from -p");
    if (o->jsonl && o->prompt_ids)
        opt_usage_error(program, "--prompt-ids goes with plain generation only");
    for (size_t i = 0; i < o->stop.n; i++)
        if (!*o->stop.text[i])
            opt_usage_error(program, "--stop: the text is empty");
    if (!o->jsonl && (o->unordered || o->logprobs))
        opt_usage_error(program, "--unordered and --logprobs go with --jsonl");
    if (!o->jsonl && o->lenient)
        opt_usage_error(program, "--lenient goes with --jsonl");
    if (o->jsonl && (o->echo || o->ids))
        opt_usage_error(program, "--echo and --ids go with plain generation only");
    if ((o->system || o->special) && !o->chat && !o->jsonl)
        opt_usage_error(program, "--system and --parse-special (--special) go with --chat");
    if (o->no_parse_special && (o->special || o->prompt_ids || o->detokenize))
        opt_usage_error(program, "--no-parse-special goes with text, and not with --parse-special");
    if (o->chat && o->prompt_ids)
        opt_usage_error(program, "--chat is for what is said, --prompt-ids for ids as they are");
    if (o->split == SPLIT_REQUESTS && !o->jsonl)
        opt_usage_error(program, "--split requests goes with --jsonl");
    if (o->layers && o->split != SPLIT_LAYERS)
        opt_usage_error(program, "--layers goes with --split layers");
    if (o->layers)
        opt_no_empty_entry(program, "--layers", o->layers);
    if (o->in_flight && o->split != SPLIT_LAYERS)
        opt_usage_error(program, "--in-flight goes with --split layers");
    gen_check_kv_usage(program, o);
    gen_check_heads_usage(program, o);
    if ((o->shift || o->keep) && (!o->kv || strncmp(o->kv, "shift", 5) != 0))
        opt_usage_error(program, "--shift and --keep go with --kv shift");
    if (o->keep && !o->shift)
        opt_usage_error(program, "--keep goes with --shift recompute");
    if (o->shift && (o->beams || o->save_kv || o->prompt_cache))
        opt_usage_error(program, "--shift recompute goes neither with --beams nor with snapshots");
    names_check(program, o->kv, o->attn, o->isa, o->precision);
    check_ids(program, o->prompt_ids);
}

/* ID=BIAS, where BIAS is a number or -inf. */
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

static void read_biases(const struct program *program, struct gen_options *o)
{
    const size_t n = o->logit_bias.n;
    struct err err;
    struct logit_bias *bias = n ? mem_alloc(n, sizeof *bias) : NULL;
    if (n && !bias) {
        err_set(&err, "out of memory for %zu biases", n);
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
                                "--logit-bias: token %u has two: give one of \"%s\" and \"%s\"",
                                bias[i].id, o->logit_bias.text[j], o->logit_bias.text[i]);
    }
    o->sampling.bias = bias;
    o->sampling.n_biases = n;
}

void gen_release_options(struct gen_options *o)
{
    free(o->stop.text);
    free(o->logit_bias.text);
    free((void *)(uintptr_t)o->sampling.bias);
}

void gen_finish_options(const struct program *program, struct gen_options *o)
{
    read_biases(program, o);
    o->format = o->format < 0 ? TABLE_TEXT : o->format;
    for (size_t i = 0; o->escape && i < o->stop.n; i++)
        unescape(o->stop.text[i]);
    if (o->escape && o->prompt)
        unescape((char *)(uintptr_t)o->prompt);
}
