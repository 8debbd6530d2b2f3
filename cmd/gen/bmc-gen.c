/* bmc-gen: generate text, score it, tokenize it. */
#include <stdlib.h>

#include "base/cgroup.h"
#include "chat/repl.h"
#include "cli.h"
#include "opt/opt_files.h"
#include "gen/gen_opts.h"
#include "gen/gen_parallel.h"
#include "gen/gen_ranks.h"

/* clang-format off */
static const struct opt opts[] = {
    HEADING("Model and prompt"),
    GEN_OPTS_MODEL
    PATH("file", "f", "FILE", file, "read the prompt (or the JSON lines, or the text to score) from a file; - is standard input, the default"),
    GEN_OPTS_PROMPT
    GEN_OPTS_CHAT
    GEN_OPTS_SAMPLING
    GEN_OPTS_CONSTRAINTS
    HEADING("Beam search"),
    SIZE("beams", NULL, beams, 1, 4096, "beam search with N beams; print the best finished sequence"),
    SIZE("n-best", NULL, n_best, 1, 4096, "print the N best sequences, one per line; with --jsonl, sequences in each result (default 1, with --jsonl all)"),
    REAL("length-penalty", "X", length_penalty, -1e3, 1e3, "divide a sequence's log-probability by its length to the power of X (default 1)"),
    {OPT_CHOICE, "early-stopping", NULL, "WHEN", "when to end a search that has as many finished sequences as beams: yes (at once), no (when no unfinished one is better now) or never (when none can become better) (default no)", AT(early_stopping), 0, 0, BEAM_STOPPINGS, false},
    GEN_OPTS_BATCHES
    TEXT("memory", NULL, "SIZE", memory, "memory for the KV cache, as 4G or 512M: admits as many requests at a time as fit with all tokens that they may generate"),
    GEN_OPTS_SNAPSHOTS
    HEADING("Other jobs"),
    FLAG("score", NULL, score, "print the log-probability of every token of a text, and its perplexity; with --jsonl, of a text per line"),
    FLAG("summary", NULL, summary, "with --score, print only the number of tokens, the mean log-probability and the perplexity"),
    TOKENS("stride", NULL, stride, 1, MANY, "with --score, tokens between the starts of overlapping windows over a text longer than the context (default half the context)"),
    OUTPUT("save-imatrix", NULL, OPT_WRITES_IMATRIX, save_imatrix, "with --score of one text, write an importance matrix for bmc-convert"),
    FLAG("embed", NULL, embed, "print the embedding of each line of a text as a line of JSON; with --jsonl, of a text per line"),
    CHOICE("pooling", "HOW", pooling, "mean|last|cls", "with --embed, what the embedding is made of: the {} hidden state of the text's tokens after the final norm, cls being the first (default: what the model declares, or mean)"),
    FLAG("normalize", NULL, normalize, "with --embed, scale embeddings to unit length (the default, unless the model declares that they are not)"),
    FLAG("no-normalize", NULL, no_normalize, "with --embed, do not scale embeddings to unit length"),
    FLAG("tokenize", NULL, tokenize, "print token ids and pieces of each line of a text"),
    FLAG("render-chat", NULL, render_chat, "print the prompt that --chat makes in place of generating; with --jsonl, a line for each request's messages"),
    FLAG("detokenize", NULL, detokenize, "read lines of token ids, print their text"),
    HEADING("Output"),
    GEN_OPTS_OUTPUT
    ROW_FORMAT("output format of --score and --tokenize: {} (default table)"),
    GEN_OPTS_MACHINE
    PATH("retrieval-heads", NULL, "FILE", heads, "with --kv headwise, the list of retrieval heads made by bmc-prof heads; other KV heads attend to sinks and a recent window only"),
    GEN_OPTS_RANKS
};
/* clang-format on */

static const char *const usage[] = {
    "[-m MODEL.bmc] -p TEXT [OPTION ...]",
    "[-m MODEL.bmc] --chat -i [OPTION ...]",
    "[-m MODEL.bmc] --jsonl [-np N] < REQUESTS > RESULTS",
    "[-m MODEL.bmc] --score [--summary] [--jsonl [-np N]] < TEXT",
    "[-m MODEL.bmc] --embed [--jsonl] [-np N] < TEXTS > EMBEDDINGS",
    "[-m MODEL.bmc] --render-chat --chat -p TEXT | --jsonl < REQUESTS",
    "[-m MODEL.bmc] --tokenize | --detokenize < TEXT",
    NULL,
};

static const struct program program = {
    "bmc-gen", "generate text with a language model", usage, opts, ARRAY_LEN(opts), NULL, NULL};

enum {
    TOKENIZE = 1 << 0,
    DETOKENIZE = 1 << 1,
    JSONL = 1 << 2,
    SCORE = 1 << 3,
    SUMMARY_STRIDE = 1 << 4,
    SAVE_IMATRIX = 1 << 5,
    LOGPROBS = 1 << 6,
    FORMAT = 1 << 7,
    CHAT = 1 << 8,
    PREFIX_CACHE_MB = 1 << 9,
    MEMORY = 1 << 10,
    STATS = 1 << 11,
    RENDER_CHAT = 1 << 12,
    LOAD_SAVE = 1 << 13,
    EMBED = 1 << 14,
    EMBED_HOW = 1 << 15,
    INTERACTIVE = 1 << 16,
    UNIT_LENGTH = 1 << 17,
    ANY_LENGTH = 1 << 18,
};

static const struct usage_rule rules[] = {
    {TOKENIZE | DETOKENIZE, EXCLUSIVE, SCORE | JSONL,
     "--tokenize and --detokenize exclude each other, --score and --jsonl"},
    {EMBED, EXCLUDES, SCORE | TOKENIZE | DETOKENIZE | CHAT | LOGPROBS | FORMAT | MEMORY | RENDER_CHAT,
     "--embed excludes other jobs, --chat, --logprobs, --format and --memory"},
    {EMBED_HOW, NEEDS, EMBED, "--pooling, --normalize and --no-normalize go with --embed"},
    {UNIT_LENGTH, EXCLUDES, ANY_LENGTH, "--normalize and --no-normalize exclude each other"},
    {SUMMARY_STRIDE, NEEDS, SCORE, "--summary and --stride go with --score"},
    {SAVE_IMATRIX, NEEDS, SCORE, "--save-imatrix goes with --score"},
    {SAVE_IMATRIX, EXCLUDES, JSONL, "--save-imatrix goes with --score of one text, not with --jsonl"},
    {LOGPROBS, EXCLUDES, SCORE,
     "--logprobs goes with generation; --score prints the log-probability of every token"},
    {FORMAT, NEEDS, SCORE | TOKENIZE,
     "--format goes with --score and --tokenize, and not with --jsonl"},
    {FORMAT, EXCLUDES, JSONL, "--format excludes --jsonl, whose results are JSON lines"},
    {CHAT, EXCLUDES, SCORE | TOKENIZE | DETOKENIZE, "--chat goes with generation"},
    {PREFIX_CACHE_MB, NEEDS, JSONL, "--prefix-cache-mb goes with --jsonl"},
    {MEMORY, EXCLUDES, SCORE | TOKENIZE | DETOKENIZE, "--memory goes with generation"},
    {RENDER_CHAT, NEEDS, CHAT | JSONL, "--render-chat goes with --chat or --jsonl"},
    {RENDER_CHAT, EXCLUDES, INTERACTIVE | SCORE | TOKENIZE | DETOKENIZE | STATS | LOAD_SAVE,
     "--render-chat generates nothing: it excludes other jobs, -i, --stats and snapshots"},
    {STATS, EXCLUDES, TOKENIZE | DETOKENIZE, "--stats goes with generation and --score"},
};

static void check_usage(const struct gen_options *o, const struct operands *operands)
{
    const uint64_t given =
        (o->tokenize ? TOKENIZE : 0) | (o->detokenize ? DETOKENIZE : 0) | (o->jsonl ? JSONL : 0) |
        (o->score ? SCORE : 0) | (o->summary || o->stride ? SUMMARY_STRIDE : 0) |
        (o->save_imatrix ? SAVE_IMATRIX : 0) | (o->request.logprobs ? LOGPROBS : 0) |
        (o->format >= 0 ? FORMAT : 0) | (o->chat ? CHAT : 0) |
        (o->prefix_cache_mb != SIZE_MAX ? PREFIX_CACHE_MB : 0) | (o->memory ? MEMORY : 0) |
        (o->normalize ? UNIT_LENGTH : 0) | (o->no_normalize ? ANY_LENGTH : 0) | (o->embed ? EMBED : 0) |
        (o->pooling >= 0 || o->normalize || o->no_normalize ? EMBED_HOW : 0) | (o->stats ? STATS : 0) |
        (o->render_chat ? RENDER_CHAT : 0) | (o->interactive ? INTERACTIVE : 0) |
        (o->load_kv || o->save_kv || o->prompt_cache ? LOAD_SAVE : 0);
    usage_check(&program, given, rules, ARRAY_LEN(rules));
    gen_check_usage(&program, o, operands);
}

/* --memory, but at most three quarters of what control groups leave: the rest is for activations. */
static size_t memory_of(const struct gen_options *o)
{
    if (!o->memory)
        return 0;
    const size_t given = opt_bytes(&program, "--memory", o->memory), left = cgroup_memory(""),
                 most = size_max(left - left / 4, 1);
    if (given > most && !o->quiet)
        cli_say(
            stderr,
            "%s: --memory %s: the control group of this process leaves %zu MiB; the cache gets %zu\n",
            program.name, o->memory, left >> 20, most >> 20);
    return size_min(given, most);
}

int main(int argc, char **argv)
{
    struct gen_options o = gen_defaults();
    struct operands operands;
    struct err err;
    cli_begin(program.name);
    if (line_editor_version)
        cli_uses("libedit", line_editor_version);
    ranks_mute_errors();
    opt_parse(&program, argc, argv, &o, &operands);
    check_usage(&o, &operands);
    gen_finish_options(&program, &o);
    o.memory_bytes = memory_of(&o);
    struct gen gen = {.program = &program, .options = &o};
    int rc = -1;
    if (gen_open_ranks(&gen, &o, &err) == 0 && gen_choose_seed(&gen, &err) == 0 &&
        opt_files_check(&program, &o, &err) == 0 && repl_check_terminal(&gen, &err) == 0 &&
        gen_open_model(&gen, &err) == 0 && gen_agree(&gen, NULL, &err) == 0 &&
        gen_shard_model(&gen, &err) == 0 && gen_open_experts(&gen, &err) == 0 &&
        gen_open_lora(&gen, &err) == 0 && gen_open_kv(&gen, &err) == 0 &&
        gen_open_heads(&gen, &err) == 0) {
        if (gen_is_replica(&gen))
            rc = gen_replicate(&gen, &err);
        else if (o.interactive)
            rc = repl_run(&gen, &err);
        else if (o.render_chat)
            rc = gen_render_chat(&gen, &err);
        else if (o.embed)
            rc = gen_embed(&gen, &err);
        else if (o.score)
            rc = o.jsonl ? gen_score_jsonl(&gen, &err) : gen_score(&gen, &err);
        else if (o.jsonl)
            rc = gen_jsonl(&gen, &err) < 0 ? -1 : gen_jsonl_verdict(&gen, &err);
        else if (o.tokenize)
            rc = gen_tokenize(&gen, &err);
        else if (o.detokenize)
            rc = gen_detokenize(&gen, &err);
        else
            rc = gen_text(&gen, &err);
    }
    rc = gen_end_model_parallel(&gen, rc, &err);
    gen_close_ranks(&gen, rc, &err);
    gen_close(&gen);
    gen_release_options(&o);
    return cli_end(program.name, rc < 0 ? cli_fail(program.name, &err) : CLI_OK);
}
