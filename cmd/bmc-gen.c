/* bmc-gen: generate text, score it, tokenize it. */
#include <stdlib.h>

#include "cli.h"
#include "files.h"
#include "gen_opts.h"
#include "gen_ranks.h"
#include "gen_split.h"

/* clang-format off */
static const struct opt opts[] = {
    HEADING("Model and prompt"),
    GEN_OPTS_MODEL
    PATH("file", "f", "FILE", file, "read the prompt (or the JSON lines, or the text to score) from a file; - is standard input, which is also the default"),
    GEN_OPTS_PROMPT
    GEN_OPTS_CHAT
    GEN_OPTS_SAMPLING
    HEADING("Beam search"),
    SIZE("beams", NULL, beams, 1, 4096, "go on with the N most likely texts at a time, and print the best that has ended"),
    SIZE("n-best", NULL, n_best, 1, 4096, "print the N best texts, a line each; with --jsonl how many a result has (default 1, with --jsonl all)"),
    REAL("length-penalty", "X", length_penalty, -1e3, 1e3, "divide the log-probability of a text by its length to the power of X (default 1)"),
    {OPT_CHOICE, "early-stopping", NULL, "WHEN", "end a search when as many texts have ended as there are beams: yes (at once), no (when none that is under way is better now) or never (when none can become better) (default no)", AT(early_stopping), 0, 0, BEAM_STOPPINGS, false},
    GEN_OPTS_BATCHES
    TEXT("memory", NULL, "SIZE", memory, "memory for the rows of the cache, as 4G or 512M: as many requests are under way at a time as fit, with all the tokens that they may get"),
    GEN_OPTS_SNAPSHOTS
    HEADING("Other jobs"),
    FLAG("score", NULL, score, "print the log-probability of every token of a text, and the perplexity of the whole; with --jsonl those of a text per line"),
    FLAG("summary", NULL, summary, "with --score, print only the number of tokens, the mean log-probability and the perplexity"),
    TOKENS("stride", NULL, stride, 1, MANY, "with --score, tokens between the beginnings of the windows in which a text longer than the context is taken (default half the context)"),
    OUTPUT("save-importance", NULL, OPT_WRITES_IMPORTANCE, save_importance, "with --score of one text, write how much each input of the model's matrices mattered, for bmc-convert --importance"),
    FLAG("tokenize", NULL, tokenize, "print ids and pieces of each line of a text"),
    FLAG("detokenize", NULL, detokenize, "read lines of ids, print their text"),
    HEADING("Output"),
    GEN_OPTS_OUTPUT
    ROW_FORMAT("how --score and --tokenize print: {} (default table)"),
    GEN_OPTS_MACHINE
    PATH("heads", NULL, "FILE", heads, "with --kv headwise, KV heads that see all rows, of a list that bmc-prof heads makes; the others see and keep the first and the last rows only"),
    GEN_OPTS_RANKS
};
/* clang-format on */

static const char *const usage[] = {
    "[-m MODEL.bmc] -p TEXT [OPTION ...]",
    "[-m MODEL.bmc] --jsonl [-b N] < REQUESTS > RESULTS",
    "[-m MODEL.bmc] --score [--summary] [--jsonl [-b N]] < TEXT",
    "[-m MODEL.bmc] --tokenize | --detokenize < TEXT",
    NULL,
};

static const struct program program = {
    "bmc-gen", "generate text with a language model", usage, opts, ARRAY_LEN(opts), NULL, NULL};

static void check_usage(const struct gen_options *o, const struct operands *operands)
{
    const bool tokens = o->tokenize || o->detokenize;
    if (o->tokenize + o->detokenize + (o->score || o->jsonl) > 1)
        opt_usage_error(&program,
                        "--tokenize and --detokenize exclude each other, --score and --jsonl");
    if ((o->jsonl || o->score || tokens) && o->prompt_ids)
        opt_usage_error(&program, "--prompt-ids goes with plain generation only");
    if ((o->score || tokens) && (o->echo || o->ids))
        opt_usage_error(&program, "--echo and --ids go with plain generation only");
    if (!o->score && (o->summary || o->stride))
        opt_usage_error(&program, "--summary and --stride go with --score");
    if (o->save_importance && (!o->score || o->jsonl))
        opt_usage_error(&program, "--save-importance goes with --score, and not with --jsonl");
    if (o->score && o->logprobs)
        opt_usage_error(&program, "--logprobs goes with generation; --score tells those of each token");
    if (o->format >= 0 && (o->jsonl || (!o->score && !o->tokenize)))
        opt_usage_error(&program, "--format goes with --score and --tokenize, and not with --jsonl");
    if ((o->score || tokens) && o->chat)
        opt_usage_error(&program, "--chat goes with generation");
    if (!o->jsonl && o->share_mb != SIZE_MAX)
        opt_usage_error(&program, "--share-mb goes with --jsonl");
    if (o->memory && (o->score || tokens))
        opt_usage_error(&program, "--memory goes with generation");
    if (tokens && o->stats)
        opt_usage_error(&program, "--stats has nothing to tell of --tokenize and --detokenize");
    gen_check_beams_usage(&program, o);
    gen_check_usage(&program, o, operands);
}

int main(int argc, char **argv)
{
    struct gen_options o = gen_defaults();
    struct operands operands;
    struct err err;
    cli_begin(program.name);
    ranks_mute_errors();
    opt_parse(&program, argc, argv, &o, &operands);
    check_usage(&o, &operands);
    gen_finish_options(&program, &o);
    o.memory_bytes = o.memory ? opt_bytes(&program, "--memory", o.memory) : 0;
    struct gen gen = {.program = &program, .options = &o};
    int rc = -1;
    if (gen_open_ranks(&gen, &o, &err) == 0 && gen_choose_seed(&gen, &err) == 0 &&
        files_check(&program, &o, &err) == 0 && gen_open_model(&gen, &err) == 0 &&
        gen_agree(&gen, NULL, &err) == 0 && gen_split(&gen, &err) == 0 &&
        gen_open_kv(&gen, &err) == 0 && gen_open_heads(&gen, &err) == 0) {
        if (gen_follows(&gen))
            rc = gen_follow(&gen, &err);
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
    rc = gen_end_split(&gen, rc, &err);
    gen_close_ranks(&gen, rc, &err);
    gen_close(&gen);
    gen_release_options(&o);
    return cli_end(program.name, rc < 0 ? cli_fail(program.name, &err) : CLI_OK);
}
