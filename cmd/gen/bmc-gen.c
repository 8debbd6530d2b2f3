/* bmc-gen: generate text, score it, tokenize it. */
#include "chat/repl.h"
#include "chat/repl_session.h"
#include "cli.h"
#include "gen/gen_opts.h"

/* clang-format off */
static const struct opt opts[] = {
    HEADING("Model and prompt"),
    GEN_OPTS_MODEL
    ROW_PROMPT,
    PATH("file", "f", "FILE", file, "read the prompt (or the JSON lines, or the text to score) from a file; - is standard input, the default"),
    GEN_OPTS_PROMPT
    GEN_OPTS_CHAT
    GEN_OPTS_SAMPLING
    GEN_OPTS_CONSTRAINTS
    HEADING("Speculative decoding"),
    ROW_NO_SPEC,
    HEADING("Beam search"),
    SIZE("beams", NULL, beams, 1, 4096, "beam search with N beams; print the best finished sequence"),
    SIZE("n-best", NULL, n_best, 1, 4096, "print the N best sequences, one per line; with --jsonl, sequences in each result (default 1, with --jsonl all)"),
    REAL("length-penalty", "X", length_penalty, -1e3, 1e3, "divide a sequence's log-probability by its length to the power of X (default 1)"),
    {OPT_CHOICE, "early-stopping", NULL, "WHEN", "when to end a search that has as many finished sequences as beams: yes (at once), no (when no unfinished one is better now) or never (when none can become better) (default no)", AT(early_stopping), 0, 0, BEAM_STOPPINGS, false},
    GEN_OPTS_BATCHES
    ROW_MEMORY,
    ROWS_PRESSURE
    GEN_OPTS_SNAPSHOTS
    HEADING("Receipts"),
    OUTPUT("receipt", NULL, OPT_WRITES_RECEIPT, receipt, "write a receipt of each answer: model, settings, request, seed, tokens and a hash chain of their logits, which others can verify"),
    PATH("receipt-key", NULL, "FILE", receipt_key, "with --receipt, sign them with this secret key, 64 hexadecimal digits as openssl rand -hex 32 makes them; with --verify-receipt, they must be signed by this key, whose public one is enough"),
    PATH("verify-receipt", NULL, "FILE", verify_receipt, "compute the answers of receipts again, at the speed of prompts, and say for each whether it is equal, or where it first differs; the exit status is 1 unless all are equal"),
    HEADING("Other jobs"),
    FLAG("score", NULL, score, "print the log-probability of every token of a text, and its perplexity; with --jsonl, of a text per line"),
    FLAG("summary", NULL, summary, "with --score, print only the number of tokens, the mean log-probability and the perplexity"),
    TOKENS("stride", NULL, stride, 1, MANY, "with --score, tokens between the starts of overlapping windows over a text longer than the context (default half the context)"),
    OUTPUT("save-imatrix", NULL, OPT_WRITES_IMATRIX, save_imatrix, "with --score of one text, write an importance matrix for bmc-convert"),
    FLAG("embed", NULL, embed, "print the embedding of each line of a text as a line of JSON; with --jsonl, of a text per line"),
    CHOICE("pooling", "HOW", pooling, "mean|last|cls", "with --embed, what the embedding is made of: the {} hidden state of the text's tokens after the final norm, cls being the first (default: what the model declares, or mean)"),
    TEXT("embed-prompt", NULL, "NAME", embed_prompt, "with --embed, put the model's prompt of this name before every text, \"\" none (default: the one that the model declares as its default, if any)"),
    FLAG("normalize", NULL, normalize, "with --embed, scale embeddings to unit length (the default, unless the model declares that they are not)"),
    FLAG("no-normalize", NULL, no_normalize, "with --embed, do not scale embeddings to unit length"),
    FLAG("rerank", NULL, rerank, "print the relevance of documents for a query, as a line of JSON for each line of JSON with \"query\" and \"documents\""),
    FLAG("tokenize", NULL, tokenize, "print token ids and pieces of each line of a text"),
    FLAG("render-chat", NULL, render_chat, "print the prompt that --chat makes in place of generating; with --jsonl, a line for each request's messages"),
    FLAG("list-sessions", NULL, list_sessions, "list the conversations that --session keeps"),
    TEXT("remove-session", NULL, "NAME", remove_session, "remove a conversation that --session keeps"),
    FLAG("detokenize", NULL, detokenize, "read lines of token ids, print their text"),
    HEADING("Output"),
    GEN_OPTS_OUTPUT
    ROW_FORMAT("output format of --score and --tokenize: {} (default table)"),
    GEN_OPTS_MACHINE
    ROW_HEADS,
    GEN_OPTS_RANKS
};
/* clang-format on */

static const char *const usage[] = {
    "[-m MODEL] [OPTION ...] TEXT",
    "[-m MODEL] --chat -i [OPTION ...]",
    "[-m MODEL] --jsonl [-np N] < REQUESTS > RESULTS",
    "[-m MODEL] --score [--summary] [--jsonl [-np N]] < TEXT",
    "[-m MODEL] --embed [--jsonl] [-np N] < TEXTS > EMBEDDINGS",
    "[-m MODEL] --rerank [-np N] < QUERIES > SCORES",
    "[-m MODEL] --render-chat --chat -p TEXT | --jsonl < REQUESTS",
    "[-m MODEL] --verify-receipt RECEIPTS",
    "[-m MODEL] --tokenize | --detokenize < TEXT",
    NULL,
};

static const struct program program = {
    "bmc-gen", "generate text with a language model", usage, opts, ARRAY_LEN(opts), NULL, NULL};

static const struct usage_rule rules[] = {
    {"tokenize detokenize", EXCLUSIVE, "score jsonl",
     "--tokenize and --detokenize exclude each other, --score and --jsonl"},
    {"embed", EXCLUDES, "score tokenize detokenize chat logprobs format memory render-chat",
     "--embed excludes other jobs, --chat, --logprobs, --format and --memory"},
    {"rerank", EXCLUDES,
     "score embed tokenize detokenize chat logprobs format memory render-chat openai",
     "--rerank excludes other jobs, --chat, --logprobs, --format, --openai and --memory"},
    {"pooling embed-prompt normalize no-normalize", NEEDS, "embed", NULL},
    {"normalize no-normalize", EXCLUSIVE, "", NULL},
    {"summary stride", NEEDS, "score", NULL},
    {"save-imatrix", NEEDS, "score", NULL},
    {"list-sessions remove-session", EXCLUSIVE,
     "prompt chat jsonl score embed rerank tokenize detokenize", NULL},
    {"save-imatrix", EXCLUDES, "jsonl",
     "--save-imatrix goes with --score of one text, not with --jsonl"},
    {"logprobs", EXCLUDES, "score",
     "--logprobs goes with generation; --score prints the log-probability of every token"},
    {"format", NEEDS, "score tokenize",
     "--format goes with --score and --tokenize, and not with --jsonl"},
    {"format", EXCLUDES, "jsonl", "--format excludes --jsonl, whose results are JSON lines"},
    {"chat", EXCLUDES, "score tokenize detokenize", "--chat goes with generation"},
    {"prefix-cache-mb", NEEDS, "jsonl", NULL},
    {"openai", EXCLUDES, "score render-chat", NULL},
    {"memory", EXCLUDES, "score tokenize detokenize", "--memory goes with generation"},
    {"kv-pressure kv-pressure-replay", EXCLUSIVE,
     "score embed rerank tokenize detokenize render-chat interactive beams save-kv prompt-cache "
     "receipt "
     "verify-receipt",
     NULL},
    {"kv-pressure-limit kv-pressure-log", NEEDS, "kv-pressure", NULL},
    {"render-chat", NEEDS, "chat jsonl", NULL},
    {"render-chat", EXCLUDES,
     "interactive score tokenize detokenize stats load-kv save-kv prompt-cache",
     "--render-chat generates nothing: it excludes other jobs, -i, --stats and snapshots"},
    {"receipt", EXCLUDES, "beams interactive render-chat score embed rerank tokenize detokenize",
     "--receipt goes with plain generation and --jsonl, and not with --beams"},
    {"receipt-key", NEEDS, "receipt verify-receipt", NULL},
    {"verify-receipt", EXCLUDES,
     "receipt prompt prompt-ids file jsonl chat load-kv save-kv prompt-cache beams score embed "
     "rerank tokenize "
     "detokenize json-schema grammar regex choice predict ctx-size precision cache-type cache-kld seed "
     "temp",
     "--verify-receipt takes prompt, parameters, seed, -c, --precision and --cache-type from the "
     "receipts, and generates nothing else"},
    {"stats", EXCLUDES, "tokenize detokenize", "--stats goes with generation and --score"},
    {"check-hash", EXCLUDES, "score embed rerank tokenize detokenize render-chat",
     "--check-hash goes with generation"},
};

static int run_job(struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    return o->interactive                                    ? repl_run(gen, err)
           : o->render_chat                                  ? gen_render_chat(gen, err)
           : o->embed || o->rerank || (o->score && o->jsonl) ? gen_text_lines(gen, err)
           : o->score                                        ? gen_score(gen, err)
           : o->jsonl          ? (gen_jsonl(gen, err) < 0 ? -1 : gen_verdict(gen, "requests", err))
           : o->verify_receipt ? gen_verify_receipts(gen, err)
           : o->tokenize       ? gen_tokenize(gen, err)
           : o->detokenize     ? gen_detokenize(gen, err)
                               : gen_text(gen, err);
}

/* --list-sessions and --remove-session, which need no model. */
static int run_sessions(struct gen_options *o)
{
    struct err err;
    const int rc =
        o->list_sessions ? repl_list_sessions(&err) : repl_remove_session(o->remove_session, &err);
    gen_release_options(o);
    return cli_end(program.name, rc < 0 ? cli_fail(program.name, &err) : CLI_OK);
}

int main(int argc, char **argv)
{
    static const struct usage_condition no_condition = {NULL, false};
    struct gen_options o = gen_defaults();
    struct operands operands;
    gen_begin(&program, argc, argv, &o, &operands);
    usage_check(&(struct usage){&program, &o, &operands, &no_condition}, rules, ARRAY_LEN(rules));
    gen_check_usage(&program, &o, &operands);
    if (o.list_sessions || o.remove_session)
        return run_sessions(&o);
    gen_finish_options(&program, &o);
    gen_adopt_receipt(&program, &o);
    o.memory_bytes = gen_memory(&program, &o);
    struct gen gen = {.program = &program, .options = &o};
    return gen_main(&gen, &o, run_job);
}
