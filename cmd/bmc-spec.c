/* bmc-spec: generate text as bmc-gen does, sooner, by speculation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "cli.h"
#include "files.h"
#include "gen_opts.h"
#include "gen_ranks.h"
#include "gen_split.h"
#include "speccmd.h"

#define SPEC_AT(field) offsetof(struct spec_cli, field)
/* clang-format off */
static const struct opt opts[] = {
    HEADING("Model and prompt"),
    GEN_OPTS_MODEL
    PATH("file", "f", "FILE", file, "read the prompt (or the JSON lines) from a file; - is standard input, which is also the default"),
    GEN_OPTS_PROMPT
    HEADING("Drafting"),
    {OPT_TEXT, "draft", "d", "FILE", "draft with this model, which must have the same vocabulary (default: the draft of the default model, when -m is not given)", SPEC_AT(draft), 0, 0, NULL, true},
    {OPT_TEXT, "model-draft", "md", "FILE", "the same as --draft", SPEC_AT(draft), 0, 0, NULL, true},
    {OPT_FLAG, "lookup", NULL, NULL, "draft what followed the last 4, 3 or 2 tokens where they stood before", SPEC_AT(lookup), 0, 0, NULL, false},
    {OPT_FLAG, "lookup-oldest", NULL, NULL, "with --lookup, where they stood first, not last", SPEC_AT(oldest), 0, 0, NULL, false},
    {OPT_FLAG, "recycle", NULL, NULL, "draft a tree of the best successors that the target gave before", SPEC_AT(recycle), 0, 0, NULL, false},
    {OPT_TEXT, "draft-max", "k", "N", "candidates of a sequence in a step (fewer where rows are short); 0 is plain decoding; auto: a length that adapts; in a batch all sequences together stay below --free-rows (default auto)", SPEC_AT(most), 0, 0, "auto", false},
    {OPT_TEXT, "fixed", NULL, "N", "the same as --draft-max", SPEC_AT(most), 0, 0, NULL, false},
    {OPT_SIZE, "length-start", NULL, "N", "adaptive length: candidates of the first step (default 7)", SPEC_AT(start), 1, 256, NULL, false},
    {OPT_SIZE, "length-step", NULL, "N", "adaptive length: more by N when a sequence accepted a draft of the full length (default 2)", SPEC_AT(step), 1, 256, NULL, false},
    {OPT_SIZE, "length-mod", NULL, "N", "adaptive length: else less by one Nth of it (default 10)", SPEC_AT(modulus), 1, 256, NULL, false},
    {OPT_SIZE, "length-limit", NULL, "N", "adaptive length: at most N (default 32)", SPEC_AT(limit), 1, 256, NULL, false},
    {OPT_TEXT, "tree", NULL, "N", "a tree of N candidates in place of a chain, or auto: chain, tree or no drafting, by the time that steps take here", SPEC_AT(tree), 0, 0, "auto", false},
    {OPT_TEXT, "acceptance", NULL, "FILE", "measured acceptance that trees are made for (default: a file of the two models in $XDG_CONFIG_HOME/bmc)", SPEC_AT(acceptance), 0, 0, NULL, true},
    {OPT_FLAG, "record-acceptance", NULL, NULL, "measure acceptance in this run, and write that file", SPEC_AT(record), 0, 0, NULL, false},
    {OPT_TOKENS, "free-rows", NULL, "N", "tokens that a step can verify at no extra latency (default: the tuned profile's; else 32 on amx with bf16 weights, 24 elsewhere with --precision bf16, 16 otherwise, and no limit for a single sequence)", SPEC_AT(free_rows), 1, 65536, NULL, false},
    {OPT_FLAG, "always", NULL, NULL, "do not pause drafting when it does not pay", SPEC_AT(always), 0, 0, NULL, false},
    {OPT_TEXT, "draft-kv", NULL, "POLICY", "cache policy of the draft model, whose rows are of --kv-type, too: {} (default: as --kv)", SPEC_AT(draft_kv), 0, 0, CHOICES_KV, false},
    {OPT_TOKENS, "draft-ctx-size", "cd", "N", "window of the draft model; when it is full, its newer half is read again (default: the context, at most the draft model's)", SPEC_AT(draft_context), 0, MANY, NULL, false},
    {OPT_REAL, "simulate-acceptance", NULL, "P", "for benchmarks only: accept each drafted token with this probability, whatever it is", SPEC_AT(simulate), 0, 1, NULL, false},
    GEN_OPTS_CHAT
    GEN_OPTS_SAMPLING
    GEN_OPTS_BATCHES
    {OPT_CHOICE, "ragged", NULL, "HOW", "attention of a batch: one (a call in which every sequence has its own rows), pad (a call over rows padded to the longest sequence) or split (a call per sequence) (default one)", SPEC_AT(ragged), 0, 0, "one|pad|split", false},
    {OPT_SIZE, "samples", NULL, "N", "N answers to one prompt, one JSON object a line, by mean log-probability; temperature 0.8 unless --temp is given", SPEC_AT(samples), 1, 4096, NULL, false},
    {OPT_TEXT, "budget", NULL, "TIME", "with --samples, those that are finished in this time: 2.5s or 800ms", SPEC_AT(budget), 0, 0, NULL, false},
    GEN_OPTS_SNAPSHOTS
    HEADING("Output"),
    GEN_OPTS_OUTPUT
    GEN_OPTS_MACHINE
    GEN_OPTS_RANKS
};
/* clang-format on */

static const char *const usage[] = {
    "[-m MODEL.bmc] [-d DRAFT.bmc | --lookup | --recycle] -p TEXT [OPTION ...]",
    "[-m MODEL.bmc] [-d DRAFT.bmc] --jsonl [-b N] < REQUESTS > RESULTS",
    "[-m MODEL.bmc] [-d DRAFT.bmc] -p TEXT --samples N [--budget TIME]",
    NULL,
};

static const struct program program = {
    "bmc-spec",
    "generate text with speculative decoding: the same output, sooner",
    usage,
    opts,
    ARRAY_LEN(opts),
    NULL,
    NULL};

/* "2.5s", "800ms" or seconds without a unit. */
static double parse_budget(const char *text)
{
    char number[32];
    const size_t len = strspn(text, "0123456789.eE+-");
    double value;
    if (len < sizeof number) {
        memcpy(number, text, len);
        number[len] = 0;
        const double unit = strcmp(text + len, "ms") == 0                ? 1
                            : !text[len] || strcmp(text + len, "s") == 0 ? 1e3
                                                                         : 0;
        if (unit > 0 && parse_double(number, &value) && value > 0 && isfinite(value))
            return value * unit;
    }
    opt_usage_error(&program, "--budget: needs a time above 0, as 2.5s or 800ms; found \"%s\"", text);
}

/* A count in [min, max], or auto. */
static size_t count_or_auto(const char *name, const char *text, size_t min, size_t max, bool *is_auto)
{
    size_t value = 0;
    *is_auto = strcmp(text, "auto") == 0;
    if (!*is_auto && (!parse_count(text, &value) || value < min || value > max))
        opt_usage_error(&program, "--%s: needs auto or a whole number from %zu to %zu; found \"%s\"",
                        name, min, max, text);
    return value;
}

/* Whether so many candidates fit is known here where -c and -cd say how much room there is; where it is a model that
 * says, the session's opening tells. */
static void check_room(const struct spec_cli *o)
{
    const size_t most = o->tree_nodes ? o->tree_nodes : o->k;
    if (o->gen.context > 0 && most >= (size_t)o->gen.context)
        opt_usage_error(
            &program, "%zu candidates do not fit the context of %zu tokens: use fewer, or a larger -c",
            most, (size_t)o->gen.context);
    if (most && o->draft_context && !o->lookup && !o->recycle && most + WINDOW_REST > o->draft_context)
        opt_usage_error(&program, "%zu candidates do not fit the draft model's window of %zu tokens",
                        most, o->draft_context);
}

static void check_policies(const struct spec_cli *o)
{
    struct kv_spec kv;
    struct err err;
    if (o->draft_kv && kv_spec_parse(&kv, o->draft_kv, &err) < 0)
        opt_usage_error(&program, "--draft-kv: %s", err.text);
    if (o->ragged == RAGGED_PAD && o->gen.kv && kv_spec_parse(&kv, o->gen.kv, &err) == 0 &&
        !kv_spec_can_lockstep(&kv))
        opt_usage_error(&program, "--ragged pad needs a cache that grows as one tensor; --kv %s cannot",
                        o->gen.kv);
}

static void check_usage(struct spec_cli *o, const struct operands *operands)
{
    enum { MOST = TREE_NODES - 1 };
    const int drafters = (o->draft != NULL) + o->lookup + o->recycle;
    if (drafters > 1)
        opt_usage_error(&program, "--draft, --lookup and --recycle exclude each other");
    if (o->oldest && !o->lookup)
        opt_usage_error(&program, "--lookup-oldest goes with --lookup");
    o->k = count_or_auto("draft-max", o->most, 0, MOST, &o->k_auto);
    if (o->tree)
        o->tree_nodes = count_or_auto("tree", o->tree, 1, MOST, &o->tree_auto);
    if (o->tree && !o->k_auto)
        opt_usage_error(&program, "--tree and a draft length (-k) exclude each other");
    if (o->tree && o->lookup)
        opt_usage_error(&program, "--lookup gives one candidate for each place: there is no tree");
    if (o->samples &&
        (o->gen.jsonl || o->gen.ids || o->gen.echo || o->gen.save_kv || o->gen.prompt_cache))
        opt_usage_error(&program,
                        "--samples excludes --jsonl, --ids, --echo, --save-kv and --prompt-cache");
    if (o->budget && !o->samples)
        opt_usage_error(&program, "--budget goes with --samples");
    if (o->samples && o->gen.sampling.temp <= 0)
        opt_usage_error(&program, "--samples with --temp 0 would give the same answer each time");
    o->budget_ms = o->budget ? parse_budget(o->budget) : 0;
    if (!drafters && o->gen.model)
        opt_usage_error(&program, "nothing to draft with: give -d DRAFT.bmc, --lookup or --recycle");
    check_room(o);
    check_policies(o);
    gen_check_usage(&program, &o->gen, operands);
}

int main(int argc, char **argv)
{
    struct spec_cli o = {
        .gen = gen_defaults(),
        .most = "auto",
        .start = 7,
        .step = 2,
        .modulus = 10,
        .limit = 32,
        .simulate = -1,
    };
    struct operands operands;
    struct err err;
    cli_begin(program.name);
    ranks_mute_errors();
    opt_parse(&program, argc, argv, &o, &operands);
    if (isnan(o.gen.sampling.temp) && o.samples)
        o.gen.sampling.temp = 0.8;
    check_usage(&o, &operands);
    gen_finish_options(&program, &o.gen);
    struct spec_run run = {.gen = {.program = &program, .options = &o.gen, .hooks = &spec_hooks},
                           .cli = &o};
    int rc = -1;
    if (gen_open_ranks(&run.gen, &o.gen, &err) == 0 && gen_choose_seed(&run.gen, &err) == 0 &&
        files_check(&program, &o, &err) == 0 && gen_open_model(&run.gen, &err) == 0 &&
        spec_open_draft(&run, &err) == 0 && gen_agree(&run.gen, run.draft, &err) == 0 &&
        gen_split(&run.gen, &err) == 0 && gen_open_kv(&run.gen, &err) == 0) {
        if (gen_follows(&run.gen))
            rc = gen_follow(&run.gen, &err);
        else if (o.gen.jsonl)
            rc = gen_jsonl(&run.gen, &err);
        else if (o.samples)
            rc = spec_samples(&run, &err);
        else
            rc = gen_text(&run.gen, &err);
        if (rc == 0 && o.record && !gen_follows(&run.gen))
            rc = spec_write_acceptance(&run, &err);
        if (rc == 0)
            rc = gen_jsonl_verdict(&run.gen, &err);
    }
    rc = gen_end_split(&run.gen, rc, &err);
    gen_close_ranks(&run.gen, rc, &err);
    spec_close_run(&run);
    gen_release_options(&o.gen);
    return cli_end(program.name, rc < 0 ? cli_fail(program.name, &err) : CLI_OK);
}
