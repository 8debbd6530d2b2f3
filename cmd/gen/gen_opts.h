/* Rows of the option table that bmc-gen and bmc-spec share; both programs' option structs begin
 * with a struct gen_options. */
#pragma once

#include "decode/prefix_store.h"
#include "gen/gen.h"
#include "opt/opt_rows.h"

#define AT(field) offsetof(struct gen_options, field)
/* clang-format off */

#define GEN_OPTS_MODEL \
    PATH("model", "m", "FILE", model, "model: a .bmc file, or a GGUF file or Hugging Face folder, which is converted on first use (default: BMC_MODEL, else the bundled model)"), \
    ROW_LORA,

#define ROW_MEMORY TEXT("memory", NULL, "SIZE", memory, "memory for the KV cache, as 4G or 512M: admits as many requests at a time as fit with all tokens that they may generate")
#define ROWS_PRESSURE \
    TEXT("kv-pressure", NULL, "STEPS", pressure.steps, "what to do when memory is short, in this order: offload (with --kv headwise, move heads to the file), q8 (convert the largest sequences to that cache type), refuse (let requests wait), as offload,q8,refuse"), \
    PATH("kv-pressure-limit", NULL, "FILE", pressure.limit, "with --kv-pressure, bytes that the cache may have, as 512M, read again and again from this file, instead of what control groups and the system leave"), \
    OUTPUT("kv-pressure-log", NULL, OPT_WRITES_PRESSURE, pressure.log, "with --kv-pressure, write a log of which sequences were converted and suspended, and at which token"), \
    PATH("kv-pressure-replay", NULL, "FILE", pressure.replay, "convert sequences as this log says, for the same output"),
#define ROW_NO_SPEC FLAG("no-spec", NULL, no_spec, "do not draft tokens by suffix decoding, which changes times only, never the output")
#define ROW_PREFIX_CACHE_MB {OPT_SIZE, "prefix-cache-mb", NULL, "MB", "memory for KV entries of finished requests, reused by requests with the same prefix; 0 disables it (default " TEXT_OF(PREFIX_MB) ")", AT(prefix_cache_mb), 0, 1 << 24, NULL, false}
#define ROW_PREFIX_CACHE PATH("prefix-cache", NULL, "DIR", prefix_cache, "keep KV entries of prompts and answers in this folder, which later runs and other processes reuse; options may follow, as DIR,size=4G,states=512: its limit (default " TEXT_OF(DEFAULT_STORE_GIB) "G), and for models with recurrent layers the tokens between stored states (default: by what they, the model and the folder take)")
#define ROW_CHAT_TEMPLATE NAMES("chat-template", "NAME", chat_format, NULL, "chat format by name or as a .chat file by path (with a slash), a Jinja template as FILE.jinja, or one of several templates of the model by name (default: the model's template, else its format)")
#define ROW_TEMPLATE_KWARGS TEXT("chat-template-kwargs", NULL, "JSON", template_kwargs, "further variables of the chat template, as a JSON object; requests can set others with chat_template_kwargs")
#define ROW_PROMPT TEXT("prompt", "p", "TEXT", prompt, "prompt text; with -f -, standard input follows after a blank line")

#define GEN_OPTS_PROMPT \
    TEXT("prompt-ids", NULL, "IDS", prompt_ids, "prompt as token ids separated by blanks; no BOS token is added"), \
    FLAG("no-parse-special", NULL, no_parse_special, "treat special tokens such as </s> in prompts and texts as plain text; requests can override it with parse_special"), \
    FLAG("escape", "e", escape, "process the escapes \\n, \\t, \\r, \\\\, \\\" and \\xHH in -p and --stop"), \
    TOKENS_INT("predict", "n", request.n, -1, MANY, "tokens to generate; -1 runs until an EOS token, a stop string or a full context (default -1)"), \
    TOKENS_INT("ctx-size", "c", context, 0, MANY, "context size, prompt and generated tokens together; 0 is the model's (default: with --jsonl the model's, else the larger of " TEXT_OF(DEFAULT_CONTEXT) " and prompt + n, at most the model's; n = -1 counts as " TEXT_OF(UNLIMITED_TOKENS) ")"),

#define GEN_OPTS_CHAT \
    HEADING("Chat"), \
    FLAG("chat", NULL, chat, "treat the prompt as a user message and apply the model's chat template"), \
    FLAG("interactive", "i", interactive, "with --chat, a conversation at the terminal: messages and commands are read line by line, /help lists the commands"), \
    TEXT("session", NULL, "NAME", session, "with -i, keep the conversation under this name, and go on with it where it ended"), \
    TEXT("system", NULL, "TEXT", system, "with --chat, the system prompt"), \
    PATH("tools", NULL, "FILE", tools, "with --chat, functions that the model may call: a JSON list as the tools of OpenAI's requests; calls are printed as lines of JSON"), \
    FLAG("run-tools", NULL, run_tools, "with -i and --tools, run the commands that the tools file has for the functions called, in a sandbox, each when you agree"), \
    ROW_CHAT_TEMPLATE, \
    ROW_TEMPLATE_KWARGS, \
    CHOICE("reasoning", "HOW", reasoning, REASONING_FORMS, "what becomes of reasoning (thoughts) in answers, found by the chat template's markers: {} (before the answer, without the markers; with --jsonl as reasoning_content) (default: separate in conversations with tools and under --openai, else part of the text, as the model writes it)"), \
    TOKENS_INT("reasoning-budget", NULL, answer.budget, -1, MANY, "tokens of reasoning in an answer, after which its end is forced; 0 ends it at once, -1 is no limit (default -1)"), \
    TEXT("reasoning-budget-message", NULL, "TEXT", answer.last_words, "words with which reasoning ends when its budget is used up"), \
    TEXT("tool-choice", NULL, "WHICH", tool_choice, "which tools are called: auto (the model decides), none, required (at least one call) or the name of one; calls have the parameters that their schemas allow (default auto)"), \
    FLAG("no-parallel-tool-calls", NULL, answer.choice.single, "at most one tool call in an answer"), \
    FLAG("parse-special", NULL, parse_special, "with --chat, parse special tokens in messages (default: plain text)"),

#define SAMPLING_OPT_REAL(field, min, max, name, arg, help)   REAL(name, arg, sampling.field, min, max, help),
#define SAMPLING_OPT_COUNT(field, min, max, name, arg, help)  {OPT_SIZE, name, NULL, arg, help, AT(sampling.field), min, MANY, NULL, false},
#define SAMPLING_OPT_TOKENS(field, min, max, name, arg, help) TOKENS_INT(name, NULL, sampling.field, min, MANY, help),
#define SAMPLING_OPT_VERSION(field, min, max, name, arg, help) CHOICE(name, arg, field, "0|2", help),
#define SAMPLING_OPT_ORDER(field, min, max, name, arg, help)  TEXT(name, NULL, arg, samplers, help),
#define SAMPLING_OPT_STATE(...)
#define SAMPLING_OPT(kind, field, name, alias, min, max, initial, gguf, generation, option, arg, help) \
    SAMPLING_OPT_##kind(field, min, max, option, arg, help)

#define GEN_OPTS_SAMPLING \
    HEADING("Sampling"), \
    SAMPLING_PARAMS(SAMPLING_OPT) \
    LIST("dry-sequence-breaker", NULL, "TEXT", dry_breaker, "DRY: repetitions do not extend over tokens that contain this text; none alone: over all; repeatable (default line feed, colon, quotation mark and asterisk)"), \
    LIST("logit-bias", NULL, "ID=BIAS", logit_bias, "add BIAS to a token's logit, -inf forbids it; repeatable"), \
    SEED(seed, -1, "random seed; -1 draws one, which the statistics report (default 0, or the snapshot's)"), \
    LIST("stop", "r", "TEXT", stop, "stop before this string; repeatable"), \
    FLAG("ignore-eos", NULL, request.ignore_eos, "continue past EOS tokens"),

#define GEN_OPTS_CONSTRAINTS \
    HEADING("Constrained output"), \
    TEXT("json-schema", "j", "FILE", json_schema, "generate JSON that this JSON Schema allows: a file, or the schema itself if it begins with a brace"), \
    PATH("grammar", NULL, "FILE", grammar, "generate text that this grammar allows, in GBNF, llama.cpp's notation"), \
    TEXT("regex", NULL, "RE", regex, "generate text that matches this regular expression from start to end"), \
    TEXT("choice", NULL, "A|B", choice, "generate one of these texts, which are separated by bars; \\| is a bar in a text"),

#define GEN_OPTS_BATCHES \
    HEADING("Batching"), \
    FLAG("jsonl", NULL, jsonl, "read one JSON request per line, write one JSON result per line in the same order"), \
    SIZE("parallel", "np", batch, 1, MOST_SEQUENCES, "sequences in a batch (default 1, with --jsonl " TEXT_OF(JSONL_BATCH) ")"), \
    FLAG("openai", NULL, openai, "with --jsonl, write results as OpenAI's objects: chat.completion and text_completion, chunks of them if the request streams, embeddings; a seed alone makes a request's random numbers"), \
    FLAG("unordered", NULL, unordered, "with --jsonl, write each result when it is complete"), \
    FLAG("lenient", NULL, lenient, "with --jsonl, ignore unknown members of requests"), \
    ROW_PREFIX_CACHE_MB, \
    SIZE("logprobs", NULL, request.logprobs, 1, 1000, "with --jsonl, report the log-probabilities of the chosen and the N most likely tokens"),

#define GEN_OPTS_SNAPSHOTS \
    HEADING("Snapshots and prefix cache"), \
    ROW_PREFIX_CACHE, \
    PATH("load-kv", NULL, "FILE", load_kv, "resume from a snapshot (a saved KV cache); the prompt is appended and may be omitted"), \
    OUTPUT("save-kv", NULL, OPT_WRITES_SNAPSHOT, save_kv, "write a snapshot at the end"), \
    OUTPUT("prompt-cache", NULL, OPT_WRITES_SNAPSHOT, prompt_cache, "reuse the prefix that the prompt shares with this snapshot, and update the snapshot at the end"),

#define GEN_OPTS_RANKS \
    HEADING("Parallelism"), \
    CHOICE("parallelism", "HOW", parallelism, PARALLELISMS, "how the processes started by mpirun share the work, {} parallelism (default: data with --jsonl, else tensor)"), \
    TEXT("layers", NULL, "LIST", layers, "with --parallelism pipeline, layers of each rank, as 10,12 (default: balanced by size)"), \
    SIZE("micro-batches", NULL, micro_batches, 1, 4096, "with --parallelism pipeline, micro-batches in flight (default: the number of ranks)"),

#define GEN_OPTS_OUTPUT \
    FLAG("echo", NULL, echo, "print the prompt before the generated text"), \
    FLAG("ids", NULL, ids, "print token ids instead of text"), \
    FLAG("special", "sp", request.keep_special, "print special tokens, such as <|im_start|>, in generated text; requests can set it with skip_special_tokens"), \
    OUTPUT("stats", NULL, OPT_WRITES_STATS, stats, "write statistics of the run to this file, as one JSON object"), \
    FLAG("roofline", NULL, roofline, "measure the machine's read rate and peak arithmetic after the run, in 0.1 to 0.3 s, for the shares of them that the statistics have (default: those that bmc-tune measured, if it has)"), \
    TEXT("check-hash", NULL, "HASH", check_hash, "compare the run's logits_hash (see --stats) with this one; exit status 1 if they differ"), \
    FLAG("quiet", "q", quiet, "print no statistics on standard error"),

#define GEN_OPTS_MACHINE \
    HEADING("KV cache and machine"), \
    NAMES("kv", "POLICY", kv, CHOICES_KV, "cache policy: {}; its parameters follow a colon, as in bmc:T=COUNT, bmc:r=ROWS, paged:16 and paged:32 (default: the tuned profile's, else bmc)"), \
    CHOICE("context-shift", "HOW", shift, "slide|recompute", "with --kv shift, what happens at a full window: slide (the oldest token is dropped) or recompute (BOS and the newer half are recomputed at new positions) (default slide)"), \
    TOKENS("keep", NULL, keep, 0, MANY, "with --context-shift recompute, initial tokens that are kept; the BOS token that the tokenizer puts in front always is (default 0)"), \
    ROW_ALLOC, \
    NAMES("cache-type", "TYPE", cache_type, CHOICES_CACHES, "element type of the KV cache: {}; k=TYPE,v=TYPE: of keys and of values; q8:scales=FILE or q4:scales=FILE: with the scales that bmc-prof cache-scales measured, shared by all entries, instead of scales per entry (default f32, or that of the snapshot)"), \
    ROW_CACHE_KLD, \
    ROW_ATTEND, \
    ROW_BACKEND, \
    ROW_GPU_LAYERS, \
    ROW_FALLBACK, \
    ROW_ATTN, \
    ROW_ISA, \
    ROW_PRECISION, \
    ROW_PROFILE(" made by bmc-tune, or none"), \
    TOKENS("chunk", NULL, chunk, 1, 1 << 20, "prompt tokens per forward pass (default " TEXT_OF(DEFAULT_CHUNK) ", with --parallelism pipeline " TEXT_OF(PIPELINE_CHUNK) ")"), \
    ROW_THREADS, \
    SIZE("threads-batch", "tb", threads_batch, 1, 4096, "threads for prompts (default: as --threads)"), \
    ROW_CPU_MASK, \
    ROW_CORES, \
    FLAG("mlock", NULL, mlock, "lock the model in memory"), \
    ROW_HUGEPAGES, \
    ROW_NUMA, \
    ROW_EXPERTS,
/* clang-format on */
