/* bmc-spec: generates the same output as bmc-gen, faster, by speculative decoding. */
#include "base/file.h"
#include "base/number.h"
#include "chat/repl.h"
#include "cli.h"
#include "gen/gen_opts.h"
#include "spec/speccmd.h"

#define SPEC_AT(field) offsetof(struct spec_cli, field)
/* clang-format off */
static const struct opt opts[] = {
    HEADING("Model and prompt"),
    GEN_OPTS_MODEL
    ROW_PROMPT,
    PATH("file", "f", "FILE", file, "read the prompt (or the JSON lines) from a file; - is standard input, the default"),
    GEN_OPTS_PROMPT
    HEADING("Drafting"),
    {OPT_TEXT, "draft", "d", "FILE", "draft model, or draft head (EAGLE) made for the model; the file tells which; self is the draft head in the model's own file (default: the bundled model's draft, when neither -m nor BMC_MODEL is given)", SPEC_AT(draft), 0, 0, NULL, true},
    {OPT_TEXT, "model-draft", "md", "FILE", "the same as --draft", SPEC_AT(draft), 0, 0, NULL, true},
    {OPT_FLAG, "lookup", NULL, NULL, "prompt lookup: draft the tokens that followed an earlier occurrence of the last 4, 3 or 2 tokens", SPEC_AT(lookup), 0, 0, NULL, false},
    {OPT_FLAG, "lookup-oldest", NULL, NULL, "with --lookup, use the first occurrence, not the latest", SPEC_AT(oldest), 0, 0, NULL, false},
    {OPT_FLAG, "suffix", NULL, NULL, "suffix decoding: draft what most often followed the longest match of the last tokens, in all sequences of the run", SPEC_AT(suffix), 0, 0, NULL, false},
    {OPT_TOKENS, "suffix-pool", NULL, "N", "with --suffix, tokens of the run that are kept, in up to 32 bytes each (default " TEXT_OF(DEFAULT_SUFFIX_POOL_KI) "K)", SPEC_AT(pool), 64, 1 << 27, NULL, false},
    {OPT_TEXT, "lookup-corpus", NULL, "FILE", "with --suffix, also draft from this text, of up to 16 MiB", SPEC_AT(corpus), 0, 0, NULL, true},
    {OPT_FLAG, "recycle", NULL, NULL, "token recycling: draft a tree of the target's most likely successors of each token so far", SPEC_AT(recycle), 0, 0, NULL, false},
    {OPT_TEXT, "draft-max", "k", "N", "draft tokens per sequence and step; 0 is plain decoding; auto adapts the length to measured times and acceptance, bass by algorithm 1 of the BASS paper (default auto)", SPEC_AT(most), 0, 0, "auto|bass", false},
    {OPT_SIZE, "length-start", NULL, "N", "adaptive draft length: first length (default " TEXT_OF(DRAFT_LENGTH_START) ")", SPEC_AT(start), 1, 256, NULL, false},
    {OPT_SIZE, "length-step", NULL, "N", "with -k bass (implied), increase of the draft length after a fully accepted draft (default 2)", SPEC_AT(step), 1, 256, NULL, false},
    {OPT_SIZE, "length-mod", NULL, "N", "with -k bass (implied), decrease otherwise, by 1/N of the length (default 10)", SPEC_AT(modulus), 1, 256, NULL, false},
    {OPT_SIZE, "length-limit", NULL, "N", "adaptive draft length: maximum (default " TEXT_OF(DRAFT_LENGTH_LIMIT) ")", SPEC_AT(limit), 1, 256, NULL, false},
    {OPT_TEXT, "tree", NULL, "N", "draft a tree of N tokens instead of a chain; auto chooses chain, tree or no drafting by measured step times", SPEC_AT(tree), 0, 0, "auto", false},
    {OPT_FLAG, "dynamic", NULL, NULL, "with --tree N and a draft head, the head's probabilities choose the shape of each tree (EAGLE-2)", SPEC_AT(dynamic), 0, 0, NULL, false},
    {OPT_TEXT, "acceptance", NULL, "FILE", "measured acceptance rates that trees are built for (default: a file for the two models in $XDG_CONFIG_HOME/bmc)", SPEC_AT(acceptance), 0, 0, NULL, true},
    {OPT_FLAG, "record-acceptance", NULL, NULL, "measure acceptance rates in this run, and write that file", SPEC_AT(record), 0, 0, NULL, false},
    {OPT_TOKENS, "batch-knee", NULL, "N", "tokens verified per step at no extra latency (default: the tuned profile's; else 32 on amx with bf16 weights, 24 elsewhere with --precision bf16, 16 otherwise, and no limit for a single sequence)", SPEC_AT(batch_knee), 1, 65536, NULL, false},
    {OPT_FLAG, "always", NULL, NULL, "do not pause drafting where it does not pay", SPEC_AT(always), 0, 0, NULL, false},
    {OPT_TEXT, "draft-kv", NULL, "POLICY", "cache policy of the draft model, whose cache has the --cache-type, too: {} (default: as --kv)", SPEC_AT(draft_kv), 0, 0, CHOICES_KV, false},
    {OPT_TOKENS, "draft-ctx-size", "cd", "N", "context of the draft model; when it is full, BOS and its newer half are recomputed (default: the context, at most the draft model's)", SPEC_AT(draft_context), 0, MANY, NULL, false},
    {OPT_CHOICE, "spec-sampling", NULL, "HOW", "when sampling, accept the draft tokens that the target draws, so that a seed gives the text of bmc-gen (coupled), or more of a draft model's, by rejection sampling, for another sample of the same distribution (default coupled)", SPEC_AT(sampling), 0, 0, "coupled|rejection", false},
    {OPT_REAL, "simulate-acceptance", NULL, "P", "for benchmarks only: accept each draft token with probability P", SPEC_AT(simulate), 0, 1, NULL, false},
    GEN_OPTS_CHAT
    GEN_OPTS_SAMPLING
    GEN_OPTS_CONSTRAINTS
    GEN_OPTS_BATCHES
    {OPT_CHOICE, "ragged", NULL, "HOW", "attention over a batch with different numbers of draft tokens: one (a single call), pad (a call padded to the longest) or split (a call per sequence) (default one)", SPEC_AT(ragged), 0, 0, "one|pad|split", false},
    {OPT_SIZE, "samples", NULL, "N", "sample N answers to one prompt, one JSON object per line, ordered by mean log-probability; temperature 0.8 unless --temp is given", SPEC_AT(samples), 1, 4096, NULL, false},
    {OPT_TEXT, "budget", NULL, "TIME", "with --samples, print those finished in this time, as 2.5s or 800ms", SPEC_AT(budget), 0, 0, NULL, false},
    GEN_OPTS_SNAPSHOTS
    HEADING("Output"),
    GEN_OPTS_OUTPUT
    GEN_OPTS_MACHINE
    GEN_OPTS_RANKS
};
/* clang-format on */

static const char *const usage[] = {
    "[-m MODEL] [-d DRAFT] [--lookup | --suffix | --recycle] -p TEXT [OPTION ...]",
    "[-m MODEL] [-d DRAFT] --jsonl [-np N] < REQUESTS > RESULTS",
    "[-m MODEL] [-d DRAFT] -p TEXT --samples N [--budget TIME]",
    NULL,
};

static const struct program program = {
    "bmc-spec",
    "generate text with speculative decoding: the same output, faster",
    usage,
    opts,
    ARRAY_LEN(opts),
    NULL,
    NULL};

/* Parses "2.5s", "800ms" or a number of seconds. */
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

/* Parses a count in [min, max], or "auto". `also` are other words that are allowed. */
static size_t count_or_auto(const char *name, const char *text, const char *also, size_t min,
                            size_t max, bool *is_auto)
{
    size_t value = 0;
    *is_auto = strcmp(text, "auto") == 0 || (*also && strcmp(text, also) == 0);
    if (!*is_auto && (!parse_count(text, &value) || value < min || value > max))
        opt_usage_error(&program,
                        "--%s: needs auto%s%s or a whole number from %zu to %zu; found \"%s\"", name,
                        *also ? ", " : "", also, min, max, text);
    return value;
}

/* Checks the number of draft tokens against -c and -cd; a model's own context is checked once it is
 * open. */
static void check_draft_fits(const struct spec_cli *o)
{
    const size_t most = o->tree_nodes ? o->tree_nodes : o->k;
    if (o->gen.context > 0 && most >= (size_t)o->gen.context)
        opt_usage_error(
            &program,
            "%zu draft tokens do not fit the context of %zu tokens: use fewer, or a larger -c", most,
            (size_t)o->gen.context);
    if (most && o->draft_context && spec_uses_model(o) && most + DRAFT_WINDOW_REST > o->draft_context)
        opt_usage_error(&program, "%zu draft tokens do not fit the draft model's window of %zu tokens",
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
        opt_usage_error(&program,
                        "--ragged pad needs a KV cache that is one tensor per layer, unlike --kv %s",
                        o->gen.kv);
}

#define DRAFTS "draft model-draft"

static const struct usage_rule rules[] = {
    {"lookup suffix recycle", EXCLUSIVE, "", NULL},
    {"recycle", EXCLUDES, DRAFTS,
     "--recycle and --draft exclude each other; --suffix can be combined with a draft model"},
    {"lookup-corpus suffix-pool", NEEDS, "suffix", NULL},
    {"@combined", EXCLUDES, "record-acceptance",
     "--record-acceptance measures a single drafter: give -d, --lookup or --suffix alone"},
    {"lookup-oldest", NEEDS, "lookup", NULL},
    {"tree", EXCLUDES, "@length @bass", "--tree and a draft length (-k) exclude each other"},
    {"tree", EXCLUDES, "lookup", "--lookup drafts one token for each position: there is no tree"},
    {"dynamic", NEEDS, "@nodes", "--dynamic goes with --tree N"},
    {"dynamic", EXCLUDES, "record-acceptance",
     "--record-acceptance measures drafts of a fixed shape: leave --dynamic out"},
    {"batch-knee", EXCLUDES, "@length @nodes",
     "--batch-knee limits drafts whose size adapts: it excludes -k N and --tree N"},
    {"samples", EXCLUDES, "interactive jsonl ids echo save-kv prompt-cache",
     "--samples excludes -i, --jsonl, --ids, --echo, --save-kv and --prompt-cache"},
    {"budget", NEEDS, "samples", NULL},
    {"samples", EXCLUDES, "@greedy", "--samples with --temp 0 would give the same answer each time"},
    {"model @env", NEEDS, "lookup suffix recycle " DRAFTS,
     "nothing to draft with: give -d DRAFT.bmc, -d self (the model's own MTP layer), --lookup, "
     "--suffix or --recycle"},
};

static void check_usage(struct spec_cli *o, const struct operands *operands)
{
    enum { MAX_NODES = TREE_NODES - 1 };
    const struct gen_options *g = &o->gen;
    const char *env = getenv("BMC_MODEL");
    o->bass = o->step || o->modulus || strcmp(o->most, "bass") == 0;
    o->k = count_or_auto("draft-max", o->most, "bass", 0, MAX_NODES, &o->k_auto);
    if (o->tree)
        o->tree_nodes = count_or_auto("tree", o->tree, "", 1, MAX_NODES, &o->tree_auto);
    const struct usage_condition conditions[] = {
        {"@combined", o->draft && (o->lookup || o->suffix)},
        {"@length", !o->k_auto}, /* -k N */
        {"@bass", o->bass},
        {"@nodes", o->tree_nodes > 0}, /* --tree N */
        {"@greedy", g->sampling.temp <= 0},
        {"@env", env && *env},
        {NULL, false},
    };
    usage_check(&(struct usage){&program, o, operands, conditions}, rules, ARRAY_LEN(rules));
    o->budget_ms = o->budget ? parse_budget(o->budget) : 0;
    if (o->draft && !o->draft[strspn(o->draft, "0123456789")] && !file_exists(o->draft))
        opt_usage_error(&program, "--draft %s: needs a draft model; -k %s limits draft tokens",
                        o->draft, o->draft);
    o->pool = o->pool ? o->pool : DEFAULT_SUFFIX_POOL;
    check_draft_fits(o);
    check_policies(o);
    gen_check_usage(&program, g, operands);
}

static int run_job(struct gen *gen, struct err *err)
{
    struct spec_run *run = (struct spec_run *)gen;
    const struct spec_cli *o = run->cli;
    int rc = o->gen.interactive ? repl_run(gen, err)
             : o->gen.jsonl     ? gen_jsonl(gen, err)
             : o->samples       ? spec_samples(run, err)
                                : gen_text(gen, err);
    if (rc == 0 && o->record)
        rc = spec_write_acceptance(run, err);
    return rc == 0 ? gen_verdict(gen, "requests", err) : rc;
}

int main(int argc, char **argv)
{
    struct spec_cli o = {
        .gen = gen_defaults(),
        .most = "auto",
        .start = DRAFT_LENGTH_START,
        .limit = DRAFT_LENGTH_LIMIT,
        .simulate = -1,
    };
    struct operands operands;
    gen_begin(&program, argc, argv, &o, &operands);
    if (isnan(o.gen.sampling.temp) && o.samples)
        o.gen.sampling.temp = 0.8;
    check_usage(&o, &operands);
    gen_finish_options(&program, &o.gen);
    struct spec_run run = {.gen = {.program = &program, .options = &o.gen, .hooks = &spec_hooks},
                           .cli = &o};
    return gen_main(&run.gen, &o.gen, run_job);
}
