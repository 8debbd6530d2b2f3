/* The rows of option tables that bmc-gen and bmc-spec share: both begin their options with a struct gen_options. */
#ifndef BMC_GEN_OPTS_H
#define BMC_GEN_OPTS_H

#include "gen.h"
#include "opt_rows.h"

#define AT(field) offsetof(struct gen_options, field)
/* clang-format off */

#define GEN_OPTS_MODEL \
    PATH("model", "m", "FILE", model, "the model file, made by bmc-convert (default: the model that came with the program)"), \
    TEXT("prompt", "p", "TEXT", prompt, "the prompt"),

#define GEN_OPTS_PROMPT \
    TEXT("prompt-ids", NULL, "IDS", prompt_ids, "the prompt as token ids, separated by blanks; no start token is added"), \
    FLAG("no-parse-special", NULL, no_parse_special, "special tokens spelled in a prompt or text, as </s>, are plain text; requests may say parse_special"), \
    FLAG("escape", "e", escape, "in -p and --stop, read \\n, \\t, \\r, \\\\, \\\" and \\xHH as in C"), \
    TOKENS_INT("predict", "n", n, -1, MANY, "tokens to generate; -1: until end-of-text, a stop string or a full context (default -1)"), \
    TOKENS_INT("ctx-size", "c", context, 0, MANY, "context: prompt and generated tokens together; 0 is the model's (default: at most the model's, else the larger of 4096 and prompt + n, where -n -1 counts as 2048; with --jsonl the model's)"),

#define GEN_OPTS_CHAT \
    HEADING("Chat"), \
    FLAG("chat", NULL, chat, "the prompt is what a user says to a chat model; its chat format goes around it"), \
    TEXT("system", NULL, "TEXT", system, "with --chat, what the system says first"), \
    NAMES("chat-format", "NAME", chat_format, NULL, "a chat format by name, or a .chat file by path (with a slash in it), in place of the model's"), \
    FLAG("parse-special", NULL, special, "with --chat, parse special tokens that are spelled in messages; they are plain text otherwise"), \
    FLAG("special", NULL, special, "the same as --parse-special; it prints no special tokens, as llama.cpp's --special does"),

#define GEN_OPTS_SAMPLING \
    HEADING("Sampling"), \
    REAL("temp", "T", sampling.temp, -1e9, 1e9, "temperature; 0 or less takes the most likely token (default 0)"), \
    {OPT_SIZE, "top-k", NULL, "K", "keep the K most likely tokens; 0 is off (default 40)", AT(sampling.top_k), 0, MANY, NULL, false}, \
    REAL("top-p", "P", sampling.top_p, 0, 1, "keep the most likely tokens until their probabilities reach P; 1 is off (default 0.95)"), \
    REAL("min-p", "P", sampling.min_p, 0, 1, "keep tokens at least P times as likely as the best; 0 is off (default 0.05)"), \
    REAL("repeat-penalty", "X", sampling.repeat_penalty, 1e-3, 1e3, "divide the logits of recent tokens; 1 is off (default 1)"), \
    TOKENS_INT("repeat-last-n", NULL, repeat_last_n, -1, MANY, "how many recent tokens the penalties look at; -1 is all (default 64)"), \
    REAL("presence-penalty", "X", sampling.presence_penalty, -1e3, 1e3, "subtract X from the logits of recent tokens; 0 is off (default 0)"), \
    REAL("frequency-penalty", "X", sampling.frequency_penalty, -1e3, 1e3, "subtract X from the logits of recent tokens for each time that they came; 0 is off (default 0)"), \
    LIST("logit-bias", NULL, "ID=BIAS", logit_bias, "add BIAS to the logit of a token, -inf forbids it; may be given again"), \
    INT("seed", "s", seed, -1, 1e19, "seed of the random numbers; -1 draws one, which the statistics tell (default 0, or that of the snapshot)"), \
    LIST("stop", "r", "TEXT", stop, "stop before this text; may be given again"), \
    FLAG("ignore-eos", NULL, ignore_eos, "go on past end-of-text tokens"),

#define GEN_OPTS_BATCHES \
    HEADING("Batches"), \
    FLAG("jsonl", NULL, jsonl, "read a request per line, write a JSON object per line, in the same order"), \
    SIZE("batch", "b", batch, 1, 65536, "sequences at a time (default 1, with --jsonl 8)"), \
    SIZE("parallel", "np", batch, 1, 65536, "the same as --batch"), \
    FLAG("unordered", NULL, unordered, "with --jsonl, write each result as soon as it is there"), \
    FLAG("lenient", NULL, lenient, "with --jsonl, ignore members of requests that are not known"), \
    {OPT_SIZE, "share-mb", NULL, "MB", "memory for rows of requests that have ended, for those to come that begin like them; 0: none (default 256)", AT(share_mb), 0, 1 << 24, NULL, false}, \
    SIZE("logprobs", NULL, logprobs, 1, 1000, "with --jsonl, add the log-probabilities of the chosen and the N best tokens"),

#define GEN_OPTS_SNAPSHOTS \
    HEADING("Snapshots"), \
    PATH("load-kv", NULL, "FILE", load_kv, "go on from a snapshot; the prompt is new text behind it, and may be left out"), \
    OUTPUT("save-kv", NULL, OPT_WRITES_SNAPSHOT, save_kv, "write a snapshot at the end, to go on from"), \
    OUTPUT("prompt-cache", NULL, OPT_WRITES_SNAPSHOT, prompt_cache, "take the rows of the beginning that the prompt shares with this snapshot, and bring it up to date at the end"),

#define GEN_OPTS_RANKS \
    HEADING("Ranks"), \
    CHOICE("split", "HOW", split, SPLITS, "what the processes that mpirun has started divide among them: {} (default: requests with --jsonl, else tensor)"), \
    TEXT("layers", NULL, "LIST", layers, "with --split layers, how many layers each rank has, as 10,12 (default: as their bytes have it)"), \
    SIZE("in-flight", NULL, in_flight, 1, 4096, "with --split layers, groups of sequences that are under way at a time (default: as many as there are ranks)"),

#define GEN_OPTS_OUTPUT \
    FLAG("echo", NULL, echo, "print the prompt before the generated text"), \
    FLAG("ids", NULL, ids, "print token ids in place of text"), \
    OUTPUT("stats", NULL, OPT_WRITES, stats, "write the statistics of the run to this file, as one JSON object"), \
    FLAG("quiet", "q", quiet, "no statistics on standard error"),

#define GEN_OPTS_MACHINE \
    HEADING("Cache and machine"), \
    NAMES("kv", "POLICY", kv, CHOICES_KV, "cache policy: {}; how one grows follows a colon, as in bmc:T=COUNT, bmc:r=ROWS, paged:16 and paged:32 (default: what the tuned profile says, else bmc)"), \
    CHOICE("shift", "HOW", shift, "slide|recompute", "with --kv shift, what a full window does: slide (the first row goes) or recompute (the text's last half is read again, and positions begin anew) (default slide)"), \
    TOKENS("keep", NULL, keep, 0, MANY, "with --shift recompute, tokens at the beginning that stay (default 0)"), \
    ROW_ALLOC, \
    ROW_KV_TYPE("f32, or that of the snapshot"), \
    ROW_ROWS, \
    ROW_ATTN, \
    ROW_ISA, \
    ROW_PRECISION, \
    ROW_PROFILE(", made by bmc-tune, or none"), \
    TOKENS("chunk", NULL, chunk, 1, 1 << 20, "prompt tokens computed at a time (default 512, with --split layers 64)"), \
    ROW_THREADS, \
    SIZE("threads-batch", "tb", threads_batch, 1, 4096, "threads for prompts (default: as --threads)"), \
    FLAG("mlock", NULL, mlock, "keep the model in memory"),
/* clang-format on */

#endif
