/* Rows of the option table that bmc-gen and bmc-spec share; both programs' option structs begin
 * with a struct gen_options. */
#ifndef BMC_GEN_OPTS_H
#define BMC_GEN_OPTS_H

#include "decode/prefix_store.h"
#include "gen/gen.h"
#include "opt/opt_rows.h"

#define AT(field) offsetof(struct gen_options, field)
/* clang-format off */

#define GEN_OPTS_MODEL \
    PATH("model", "m", "FILE", model, "model file made by bmc-convert (default: the bundled model)"), \
    LIST("lora", NULL, "FILE", lora, "add a LoRA adapter to the model: a folder as PEFT writes it, or a GGUF file; a factor may follow, as FILE:0.5; repeatable: adapters add up"), \
    TEXT("prompt", "p", "TEXT", prompt, "prompt text; with -f -, standard input follows after a blank line"),

#define GEN_OPTS_PROMPT \
    TEXT("prompt-ids", NULL, "IDS", prompt_ids, "prompt as token ids separated by blanks; no BOS token is added"), \
    FLAG("no-parse-special", NULL, no_parse_special, "treat special tokens such as </s> in prompts and texts as plain text; requests can override it with parse_special"), \
    FLAG("escape", "e", escape, "process the escapes \\n, \\t, \\r, \\\\, \\\" and \\xHH in -p and --stop"), \
    TOKENS_INT("predict", "n", n, -1, MANY, "tokens to generate; -1 runs until an EOS token, a stop string or a full context (default -1)"), \
    TOKENS_INT("ctx-size", "c", context, 0, MANY, "context size, prompt and generated tokens together; 0 is the model's (default: with --jsonl the model's, else the larger of " TEXT_OF(DEFAULT_CONTEXT) " and prompt + n, at most the model's; n = -1 counts as " TEXT_OF(UNLIMITED_TOKENS) ")"),

#define GEN_OPTS_CHAT \
    HEADING("Chat"), \
    FLAG("chat", NULL, chat, "treat the prompt as a user message and apply the model's chat template"), \
    FLAG("interactive", "i", interactive, "with --chat, a conversation at the terminal: messages and commands are read line by line, /help lists the commands"), \
    TEXT("system", NULL, "TEXT", system, "with --chat, the system prompt"), \
    NAMES("chat-template", "NAME", chat_format, NULL, "chat format by name or as a .chat file by path (with a slash), a Jinja template as FILE.jinja, or one of several templates of the model by name (default: the model's template, else its format)"), \
    TEXT("chat-template-kwargs", NULL, "JSON", template_kwargs, "further variables of the chat template, as a JSON object; requests can set others with chat_template_kwargs"), \
    FLAG("parse-special", NULL, parse_special, "with --chat, parse special tokens in messages (default: plain text)"),

#define GEN_OPTS_SAMPLING \
    HEADING("Sampling"), \
    REAL("temp", "T", sampling.temp, -1e9, 1e9, "temperature; 0 or less is greedy decoding (default 0)"), \
    {OPT_SIZE, "top-k", NULL, "K", "sample from the K most likely tokens; 0 disables it (default 40)", AT(sampling.top_k), 0, MANY, NULL, false}, \
    REAL("top-p", "P", sampling.top_p, 0, 1, "sample from the most likely tokens whose probabilities reach P in total; 1 disables it (default 0.95)"), \
    REAL("min-p", "P", sampling.min_p, 0, 1, "sample from tokens at least P times as likely as the best; 0 disables it (default 0.05)"), \
    REAL("top-n-sigma", "N", sampling.top_n_sigma, 0, 1e6, "sample from tokens whose logits are at most N standard deviations below the best; 0 disables it (default 0)"), \
    REAL("typical-p", "P", sampling.typical_p, 0, 1, "sample from the most typical tokens whose probabilities reach P in total; 1 disables it (default 1)"), \
    REAL("xtc-probability", "P", sampling.xtc_probability, 0, 1, "probability of leaving out the most likely tokens (XTC); 0 disables it (default 0)"), \
    REAL("xtc-threshold", "P", sampling.xtc_threshold, 0, 1, "with --xtc-probability, tokens at least this likely are left out, but for the last of them; above 0.5 there is none (default 0.1)"), \
    REAL("dynatemp-range", "R", sampling.dynatemp_range, 0, 1e6, "dynamic temperature: from temp - R to temp + R, by the entropy of the candidates; 0 disables it (default 0)"), \
    REAL("dynatemp-exp", "X", sampling.dynatemp_exponent, 0, 1e3, "with --dynatemp-range, exponent of the normalised entropy (default 1)"), \
    REAL("dry-multiplier", "X", sampling.dry_multiplier, 0, 1e3, "DRY: penalise tokens that continue a repetition of n tokens by X * base^(n - allowed length); 0 disables it (default 0)"), \
    REAL("dry-base", "X", sampling.dry_base, 0, 1e3, "DRY: base of the penalty (default 1.75)"), \
    {OPT_SIZE, "dry-allowed-length", NULL, "N", "DRY: repetitions shorter than this are not penalised (default 2)", AT(sampling.dry_allowed_length), 0, MANY, NULL, false}, \
    TOKENS_INT("dry-penalty-last-n", NULL, dry_last_n, -1, MANY, "DRY: recent tokens in which repetitions are looked for; -1 is all (default -1)"), \
    LIST("dry-sequence-breaker", NULL, "TEXT", dry_breaker, "DRY: repetitions do not extend over tokens that contain this text; none alone: over all; repeatable (default line feed, colon, quotation mark and asterisk)"), \
    CHOICE("mirostat", "VERSION", mirostat, "0|2", "Mirostat 2: adapt the number of candidates so that the surprise of the text approaches a target, instead of the other samplers but dry and temperature (default 0: off)"), \
    REAL("mirostat-ent", "TAU", sampling.mirostat_tau, 0, 1e3, "Mirostat: target surprise of a token, in bits (default 5)"), \
    REAL("mirostat-lr", "ETA", sampling.mirostat_eta, 0, 1, "Mirostat: learning rate (default 0.1)"), \
    TEXT("samplers", NULL, "LIST", samplers, "order of the samplers, separated by semicolons; those not listed are off (default dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature, with --mirostat 2 dry;temperature;mirostat)"), \
    REAL("repeat-penalty", "X", sampling.repeat_penalty, 1e-3, 1e3, "penalty on the logits of recent tokens; 1 disables it (default 1)"), \
    TOKENS_INT("repeat-last-n", NULL, repeat_last_n, -1, MANY, "recent tokens that penalties apply to; -1 is all (default 64)"), \
    REAL("presence-penalty", "X", sampling.presence_penalty, -1e3, 1e3, "subtract X from the logits of recent tokens; 0 disables it (default 0)"), \
    REAL("frequency-penalty", "X", sampling.frequency_penalty, -1e3, 1e3, "subtract X from the logits of recent tokens per occurrence; 0 disables it (default 0)"), \
    LIST("logit-bias", NULL, "ID=BIAS", logit_bias, "add BIAS to a token's logit, -inf forbids it; repeatable"), \
    SEED(seed, -1, "random seed; -1 draws one, which the statistics report (default 0, or the snapshot's)"), \
    LIST("stop", "r", "TEXT", stop, "stop before this string; repeatable"), \
    FLAG("ignore-eos", NULL, ignore_eos, "continue past EOS tokens"),

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
    FLAG("unordered", NULL, unordered, "with --jsonl, write each result when it is complete"), \
    FLAG("lenient", NULL, lenient, "with --jsonl, ignore unknown members of requests"), \
    {OPT_SIZE, "prefix-cache-mb", NULL, "MB", "memory for KV entries of finished requests, reused by requests with the same prefix; 0 disables it (default " TEXT_OF(PREFIX_MB) ")", AT(prefix_cache_mb), 0, 1 << 24, NULL, false}, \
    SIZE("logprobs", NULL, logprobs, 1, 1000, "with --jsonl, report the log-probabilities of the chosen and the N most likely tokens"),

#define GEN_OPTS_SNAPSHOTS \
    HEADING("Snapshots and prefix cache"), \
    PATH("prefix-cache", NULL, "DIR", prefix_cache, "keep KV entries of prompts and answers in this folder, which later runs and other processes reuse; a limit may follow, as DIR,size=4G (default size " TEXT_OF(DEFAULT_STORE_GIB) "G)"), \
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
    FLAG("special", "sp", special, "print special tokens, such as <|im_start|>, in generated text; requests can set it with skip_special_tokens"), \
    OUTPUT("stats", NULL, OPT_WRITES_STATS, stats, "write statistics of the run to this file, as one JSON object"), \
    FLAG("quiet", "q", quiet, "print no statistics on standard error"),

#define GEN_OPTS_MACHINE \
    HEADING("KV cache and machine"), \
    NAMES("kv", "POLICY", kv, CHOICES_KV, "cache policy: {}; its parameters follow a colon, as in bmc:T=COUNT, bmc:r=ROWS, paged:16 and paged:32 (default: the tuned profile's, else bmc)"), \
    CHOICE("context-shift", "HOW", shift, "slide|recompute", "with --kv shift, what happens at a full window: slide (the oldest token is dropped) or recompute (BOS and the newer half are recomputed at new positions) (default slide)"), \
    TOKENS("keep", NULL, keep, 0, MANY, "with --context-shift recompute, initial tokens that are kept; the BOS token that the tokenizer puts in front always is (default 0)"), \
    ROW_ALLOC, \
    NAMES("cache-type", "TYPE", cache_type, CHOICES_CACHES, "element type of the KV cache: {}; q8:scales=FILE or q4:scales=FILE: with the scales that bmc-prof cache-scales measured, shared by all entries, instead of scales per entry (default f32, or that of the snapshot)"), \
    ROW_ATTEND, \
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

#endif
