/* Options that a program does not have. The table says what the options of llama.cpp are here: for the sentence about an
 * unknown option, and for the man page. */
#include "opt_hint.h"

#include <string.h>

#include "base/mem.h"
#include "base/words.h"
#include "opt_roff.h"

#define SAME  "="
#define OTHER "!" /* an option of that name does something else here: the note says what */

static const struct foreign {
    const char *names; /* separated by ", " */
    const char *ours;  /* long name without dashes; SAME; OTHER; NULL: there is none */
    const char *note;  /* what there is in its place, or what differs */
    const char *where; /* the program that has `ours`; NULL: bmc-gen */
} foreign[] = {
    {"-m, --model", SAME, "a .bmc file, not GGUF", NULL},
    {"-p, --prompt, -f, --file", SAME, "without either, standard input is the prompt", NULL},
    {"--in-file", "file", NULL, NULL},
    {"-e, --escape", SAME, "off unless given", NULL},
    {"--no-escape", NULL, "off unless -e is given", NULL},
    {"-n, --predict", SAME,
     "-1 ends at a full context, but for --kv shift, which has none; -2 is a usage error", NULL},
    {"--n-predict", "predict", NULL, NULL},
    {"-c, --ctx-size", SAME, "0 is the model's; more than the model's own context is an error", NULL},
    {"--keep", SAME, "with --kv shift --shift recompute; 0 by default, -1 is a usage error", NULL},
    {"--context-shift", "kv", "--kv shift --shift recompute; a full context ends the text without it",
     NULL},
    {"--no-context-shift", NULL, "a full context ends the text unless --kv shift is given", NULL},
    {"-b", OTHER,
     "--batch, sequences computed together, not tokens; a hint says so where it seems to be "
     "meant in tokens",
     NULL},
    {"--batch-size, -ub, --ubatch-size", "chunk", "tokens of a prompt computed together", NULL},
    {"-np, --parallel", SAME, "with --jsonl", NULL},
    {"-cb, --cont-batching, -nocb, --no-cont-batching", NULL,
     "with --jsonl a finished sequence makes room for the next", NULL},
    {"-t, --threads, -tb, --threads-batch", SAME, NULL, NULL},
    {"-C, --cpu-mask, -Cr, --cpu-range, --cpu-strict, --prio, --poll, --numa", NULL,
     "taskset and numactl choose the cores", NULL},
    {"-s, --seed", SAME, "0 by default, -1 draws one", NULL},
    {"--temp", SAME, "0 (greedy) by default", NULL},
    {"--temperature", "temp", NULL, NULL},
    {"--top-k, --top-p, --min-p", SAME,
     "with the same defaults; they work with --temp above 0; --top-k is off with 0 only, a negative "
     "number is a usage error",
     NULL},
    {"--repeat-penalty, --repeat-last-n", SAME, NULL, NULL},
    {"--presence-penalty, --frequency-penalty", SAME, NULL, NULL},
    {"--logit-bias", SAME, "ID=BIAS, not ID+BIAS", NULL},
    {"-l", "logit-bias", "ID=BIAS, not ID+BIAS", NULL},
    {"--mirostat, --mirostat-lr, --mirostat-ent, --typical, --typical-p, --top-nsigma, --top-n-sigma, "
     "--xtc-probability, --xtc-threshold, --dynatemp-range, --dynatemp-exp, --dry-multiplier, "
     "--dry-base, "
     "--dry-allowed-length, --adaptive-target",
     NULL, "sampling is by --temp, --top-k, --top-p, --min-p and the penalties", NULL},
    {"--samplers, --sampling-seq, --sampler-seq", NULL, "the order of the samplers is fixed", NULL},
    {"--grammar, --grammar-file, -j, --json-schema", NULL, "the text is not bound to a grammar", NULL},
    {"--ignore-eos", SAME,
     "goes on past the end-of-text token instead of forbidding it: the token becomes part of the "
     "sequence",
     NULL},
    {"-r", SAME, "also --stop: generation ends there, and the string is not printed", NULL},
    {"--reverse-prompt", "stop", NULL, NULL},
    {"--logits-all, --n-probs", "logprobs", "with --jsonl; --score for a text", NULL},
    {"--prompt-cache", SAME, "the generated text is stored, too", NULL},
    {"--prompt-cache-all", NULL, "--prompt-cache stores the generated text, too", NULL},
    {"--prompt-cache-ro", "load-kv", NULL, NULL},
    {"-ctk, --cache-type-k, -ctv, --cache-type-v", "kv-type",
     "f32, bf16, f16, q8 (its q8_0) or q4 (its q4_1), for both; f32 by default", NULL},
    {"-fa, --flash-attn", "attn", "fused is the default", NULL},
    {"-nkvo, --no-kv-offload, -dt, --defrag-thold, --swa-full", NULL, "--kv says how the cache lies",
     NULL},
    {"--rope-scaling, --rope-scale, --rope-freq-base, --rope-freq-scale, --override-kv", NULL,
     "the model file says it", NULL},
    {"--mlock", SAME, NULL, NULL},
    {"--mmap, --no-mmap", NULL, "the model file is always mapped", NULL},
    {"-ngl, --gpu-layers, --n-gpu-layers, -sm, --split-mode, -ts, --tensor-split, -mg, --main-gpu, "
     "-dev, "
     "--device, -ngld",
     NULL, "there is only the CPU", NULL},
    {"-hf, -hfr, --hf-repo, -mu, --model-url", NULL,
     "nothing is downloaded; bmc-convert takes a folder", NULL},
    {"--lora, --lora-scaled, --control-vector, --mmproj", NULL,
     "a model is one file, as it was converted", NULL},
    {"-md, --model-draft", "model-draft", NULL, "bmc-spec"},
    {"--draft-max, --draft, --draft-n", "draft-max", NULL, "bmc-spec"},
    {"--draft-min, --draft-n-min, --draft-p-min", NULL, "the length of drafts adapts (bmc-spec)", NULL},
    {"-cd, --ctx-size-draft", "draft-ctx-size", NULL, "bmc-spec"},
    {"--outtype", "type", "auto, f32, bf16, f16, or q8, q8c, q4, q4s", "bmc-convert"},
    {"--outfile", "output", NULL, "bmc-convert"},
    {"--no-bos", "no-bos", NULL, "bmc-convert"},
    {"-sys, --system-prompt", "system", "with --chat", NULL},
    {"--chat-template", "chat-format", "a format, no template", NULL},
    {"-sp", NULL, "special tokens in the output add no text; --ids prints their ids", NULL},
    {"--special", OTHER,
     "--parse-special, which parses special tokens in messages of --chat; none are printed, --ids "
     "prints their ids",
     NULL},
    {"--no-parse-special", SAME, "of llama-tokenize, for prompts, too", NULL},
    {"-cnv, --conversation, -i, --interactive, -if, --interactive-first", NULL,
     "the programs are filters: --chat is one turn, --save-kv and --load-kv go on", NULL},
    {"--jinja, --in-prefix, --in-suffix", NULL, "bmc-chat(5) describes chat formats", NULL},
    {"-no-cnv, --no-conversation, -st, --single-turn", NULL, "there is no conversation mode", NULL},
    {"--no-display-prompt", NULL, "the prompt is not printed unless --echo is given", NULL},
    {"-v, --verbose, -co, --color, --simple-io, --log-file, --log-colors, "
     "--log-verbosity",
     NULL, "standard output is the text, standard error the statistics", NULL},
    {"--verbose-prompt", "tokenize", "prints ids and pieces of a text", NULL},
    {"--log-disable, --no-perf", "quiet", NULL, NULL},
    {"--warmup, --no-warmup", NULL, "there is no warming up", NULL},
    {"--usage", "help", NULL, NULL},
    {"--perplexity, --all-logits, --kl-divergence, llama-perplexity", "score", NULL, NULL},
    {"llama-tokenize", "tokenize", NULL, NULL},
};

/* ---- the nearest name ---- */

enum { NAME_MAX_BYTES = 31 };

/* How far `name` is from what was written: a beginning counts as one slip; too far is SIZE_MAX. */
static size_t name_distance(const char *written, size_t len, const char *name)
{
    const size_t n = strlen(name);
    char word[NAME_MAX_BYTES + 1] = "";
    if (len < 2 || len > NAME_MAX_BYTES || n > NAME_MAX_BYTES)
        return SIZE_MAX;
    if (len >= 3 && len < n && memcmp(written, name, len) == 0)
        return 1;
    memcpy(word, written, len);
    const size_t distance = words_apart(word, name);
    return distance <= size_min(len, n) / 3 || distance == 1 ? distance : SIZE_MAX;
}

static const char *nearest_name(const struct program *program, const char *written, size_t len)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < opt_count(program); i++) {
        const struct opt *opt = opt_nth(program, i);
        const size_t distance =
            opt->kind == OPT_HEADING ? SIZE_MAX : name_distance(written, len, opt->name);
        if (distance < least) {
            least = distance;
            best = opt->name;
        }
    }
    return best;
}

/* ---- the sentence ---- */

static const struct foreign *find_foreign(const char *word, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
        for (const char *at = foreign[i].names; *at;) {
            const size_t n = strcspn(at, ",");
            if (n == len && memcmp(at, word, n) == 0)
                return &foreign[i];
            at += n + strspn(at + n, ", ");
        }
    return NULL;
}

static bool is_kind(const struct foreign *row, const char *kind)
{
    return row->ours && strcmp(row->ours, kind) == 0;
}

static bool has_long(const struct program *program, const char *name)
{
    for (size_t i = 0; i < opt_count(program); i++)
        if (opt_nth(program, i)->kind != OPT_HEADING && strcmp(opt_nth(program, i)->name, name) == 0)
            return true;
    return false;
}

/* Says what a foreign option is here, if that helps the users of this program. */
static void explain_foreign(const struct program *program, const char *word, int len)
{
    const struct foreign *row = find_foreign(word, (size_t)len);
    if (!row || is_kind(row, SAME) || is_kind(row, OTHER))
        return;
    if (!row->ours)
        opt_usage_error(program, "unknown option %.*s: there is none here, %s", len, word, row->note);
    if (has_long(program, row->ours))
        opt_usage_error(program, "unknown option %.*s: here it is --%s%s%s", len, word, row->ours,
                        row->note ? ", " : "", row->note ? row->note : "");
    if (row->where)
        opt_usage_error(program, "unknown option %.*s: it is --%s of %s", len, word, row->ours,
                        row->where);
}

/* The beginning of `word` is a short option that takes a value: its length, with the dash. */
static size_t glued_option(const struct program *program, const char *word, size_t len)
{
    for (size_t n = len; n-- > 2;) {
        const struct opt *opt = opt_find(program, word + 1, n - 1, false);
        if (opt && opt->arg)
            return n;
    }
    return 0;
}

void opt_unknown(const struct program *program, const char *word, size_t len)
{
    const size_t dashes = strspn(word, "-");
    const char *near = nearest_name(program, word + dashes, len - dashes);
    const size_t glued = dashes == 1 ? glued_option(program, word, len) : 0;
    explain_foreign(program, word, (int)len);
    if (near)
        opt_usage_error(program, "unknown option %.*s; did you mean --%s?", (int)len, word, near);
    if (glued)
        opt_usage_error(program, "unknown option %.*s; did you mean %.*s %.*s?", (int)len, word,
                        (int)glued, word, (int)(len - glued), word + glued);
    opt_usage_error(program, "unknown option %.*s", (int)len, word);
}

/* ---- the man page ---- */

/* Names are not hyphenated. */
static void put_names(const char *names, FILE *out)
{
    char name[64];
    for (const char *at = names; *at;) {
        const size_t len = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)len, at);
        fprintf(out, "%s\\%%", at == names ? "" : " ");
        opt_put_roff(name, out);
        at += len + strspn(at + len, " ");
    }
}

static void put_ours(const struct foreign *row, FILE *out)
{
    char option[64];
    snprintf(option, sizeof option, "--%s", row->ours ? row->ours : "");
    if (is_kind(row, SAME))
        fputs("the same", out);
    else if (is_kind(row, OTHER))
        fputs("not the same", out);
    else if (row->ours)
        put_names(option, out);
    else
        fputs("none", out);
    if (row->where) {
        fputs(" of ", out);
        opt_put_roff(row->where, out);
    }
}

void opt_print_foreign(const struct program *program, FILE *out)
{
    (void)program;
    for (size_t i = 0; i < ARRAY_LEN(foreign); i++) {
        const struct foreign *row = &foreign[i];
        fputs("T{\n.ad l\n", out);
        put_names(row->names, out);
        fputs("\nT}\tT{\n.ad l\n", out);
        put_ours(row, out);
        if (row->note) {
            fputs(row->ours ? "; " : ": ", out);
            opt_put_roff(row->note, out);
        }
        fputs("\nT}\n", out);
    }
}
