/* Messages about unknown options. A table maps options of llama.cpp, ik_llama.cpp, Hugging Face
 * transformers and vLLM to those of these programs; the man page includes it. */
#include "opt/opt_hint.h"

#include <string.h>

#include "base/mem.h"
#include "base/text_util.h"
#include "opt/opt_roff.h"

#define SAME  "="
#define OTHER "!" /* this program has another option of that name; the note explains */

static const struct foreign {
    const char *names; /* separated by ", " */
    const char *ours;  /* long name without dashes; SAME; OTHER; NULL: no equivalent */
    const char *note;  /* what to use instead, or how it differs */
    const char *where; /* the program that has `ours`; NULL: bmc-gen */
} foreign[] = {
    {"-m, --model", SAME, "a .bmc file, not GGUF", NULL},
    {"-p, --prompt, -f, --file", SAME,
     "without either, standard input is the prompt; -f - beside -p appends it", NULL},
    {"--in-file, --prompt-file, --input, --input-file", "file", NULL, NULL},
    {"-bf, --binary-file", "file", "bytes are taken as they are, but for one final newline", NULL},
    {"-mli, --multiline-input", NULL, "standard input may have any number of lines", NULL},
    {"-e, --escape", SAME, "off unless given", NULL},
    {"--no-escape", NULL, "off unless -e is given", NULL},
    {"-n, --predict", SAME,
     "-1 ends at a full context, except with --kv shift, which has none; -2 is a usage error", NULL},
    {"--n-predict, --max-tokens, --max-new-tokens, --max-completion-tokens, --max-length", "predict",
     "generated tokens only", NULL},
    {"--min-tokens, --min-new-tokens, --min-length", NULL, "--ignore-eos continues past EOS", NULL},
    {"-c, --ctx-size", SAME, "0 is the model's; more than the model's own context is an error", NULL},
    {"--n-ctx, --num-ctx, --context-length, --max-model-len, --max-seq-len", "ctx-size", NULL, NULL},
    {"--keep", SAME, "with --kv shift --context-shift recompute; 0 by default, -1 is a usage error",
     NULL},
    {"--n-keep", "keep", NULL, NULL},
    {"--context-shift", OTHER,
     "--kv shift --context-shift recompute; without --kv shift a full context ends generation", NULL},
    {"--no-context-shift", NULL, "a full context ends generation unless --kv shift is given", NULL},
    {"-gan, --grp-attn-n, -gaw, --grp-attn-w", NULL, "self-extend is not implemented", NULL},
    {"-b", OTHER,
     "--parallel, sequences in a batch, not tokens; a hint says so where tokens seem to be meant",
     NULL},
    {"--batch-size, --n-batch, -ub, --ubatch-size, --max-num-batched-tokens, --chunked-prefill-size, "
     "--enable-chunked-prefill, --attention-max-batch, -amb",
     "chunk", "prompt tokens per forward pass", NULL},
    {"--chunk", OTHER, "prompt tokens per forward pass, not the first chunk of a text", NULL},
    {"-np, --parallel", SAME, "with --jsonl", NULL},
    {"-ns, --sequences, --n-parallel, --max-num-seqs", "parallel",
     "with --jsonl, which has a request per line", NULL},
    {"-cb, --cont-batching, -nocb, --no-cont-batching", NULL, "--jsonl always uses continuous batching",
     NULL},
    {"-t, --threads, -tb, --threads-batch", SAME, NULL, NULL},
    {"--n-threads, --num-threads", "threads", NULL, NULL},
    {"-td, --threads-draft, -tbd, --threads-batch-draft", NULL,
     "-t and -tb apply to the draft model, too (bmc-spec)", NULL},
    {"-C, --cpu-mask", SAME, NULL, NULL},
    {"-Cr, --cpu-range, --cpu-strict, --prio, --poll, -Cb, --cpu-mask-batch, -Crb, "
     "--cpu-range-batch, --cpu-strict-batch, --prio-batch, --poll-batch, -Cd, --cpu-mask-draft, -Crd, "
     "--cpu-range-draft, --cpu-strict-draft, --prio-draft, --poll-draft, -Cbd, --cpu-mask-batch-draft, "
     "-Crbd, --cpu-range-batch-draft, --cpu-strict-batch-draft, --prio-batch-draft, "
     "--poll-batch-draft",
     NULL, "--cpu-mask, taskset and numactl choose the cores", NULL},
    {"-s, --seed", SAME, "0 by default, -1 draws one", NULL},
    {"--temp", SAME, "0 (greedy) by default", NULL},
    {"--temperature", "temp", NULL, NULL},
    {"--do-sample", "temp", "sampling is on with a temperature above 0", NULL},
    {"--top-k, --top-p, --min-p", SAME,
     "with the same defaults; they work with --temp above 0; --top-k is off with 0 only, a negative "
     "number is a usage error",
     NULL},
    {"--repeat-penalty, --repeat-last-n", SAME, NULL, NULL},
    {"--repetition-penalty", "repeat-penalty", NULL, NULL},
    {"--presence-penalty, --frequency-penalty", SAME, NULL, NULL},
    {"--penalize-nl, --no-penalize-nl", NULL, "penalties apply to all tokens", NULL},
    {"--logit-bias", SAME, "ID=BIAS, not ID+BIAS", NULL},
    {"-l", "logit-bias", "ID=BIAS, not ID+BIAS", NULL},
    {"--expiring-logit-bias-file, --banned-string-file, --banned-n, --bad-words, --allowlist-keyword, "
     "--allowlist-keyword-delay, --allowlist-pieces, --allowlist-unicode-rule",
     "logit-bias", "ID=-inf forbids one token", NULL},
    {"--typical-p, --top-n-sigma, --xtc-probability, --xtc-threshold, --dynatemp-range, --dynatemp-exp",
     SAME, "0 turns off what llama.cpp turns off by -1", NULL},
    {"--typical", "typical-p", NULL, NULL},
    {"--top-nsigma", "top-n-sigma", NULL, NULL},
    {"--dry-multiplier, --dry-base, --dry-allowed-length, --dry-penalty-last-n, "
     "--dry-sequence-breaker",
     SAME, "a breaker ends repetitions at tokens that contain it", NULL},
    {"--mirostat, --mirostat-lr, --mirostat-ent", SAME, "version 2", NULL},
    {"--mirostat-eta", "mirostat-lr", NULL, NULL},
    {"--mirostat-tau", "mirostat-ent", NULL, NULL},
    {"--tfs, --adaptive-target, --adaptive-decay, --adaptive-updt-w-cur, --penalty-alpha, "
     "--no-repeat-ngram-size, --epsilon-cutoff, --eta-cutoff",
     NULL, "the samplers are those that --samplers lists", NULL},
    {"--cfg-scale, --cfg-negative-prompt, --cfg-negative-prompt-file, --guidance-scale, "
     "--negative-prompt",
     NULL, "classifier-free guidance is not implemented", NULL},
    {"--samplers", SAME, "without penalties, which come first", NULL},
    {"--sampling-seq, --sampler-seq", "samplers", "names, not letters", NULL},
    {"--grammar", SAME, "a file, not the grammar itself", NULL},
    {"--grammar-file, --guided-grammar", "grammar", NULL, NULL},
    {"-j, --json-schema", SAME, "a file, or the schema itself", NULL},
    {"-jf, --json-schema-file, --guided-json", "json-schema", NULL, NULL},
    {"--guided-regex", "regex", NULL, NULL},
    {"--guided-choice", "choice", NULL, NULL},
    {"--json-object, --response-format", NULL,
     "--json-schema '{\"type\": \"object\"}'; with --jsonl requests may have response_format", NULL},
    {"--guided-decoding-backend, --structured-outputs-config", NULL,
     "constraints have one implementation: --json-schema, --grammar, --regex and --choice", NULL},
    {"--tools, --tool-choice, --tool-call-parser, --enable-auto-tool-choice, --parallel-tool-calls, "
     "-ptcall",
     NULL, "tool calls are text, which the caller parses", NULL},
    {"--ignore-eos", SAME,
     "continues past EOS instead of forbidding it: the token becomes part of the sequence", NULL},
    {"--eos-token-id, --stop-token-ids", NULL, "the model file names its EOS tokens; --stop takes text",
     NULL},
    {"-r", SAME, "also --stop: generation ends there, and the string is not printed", NULL},
    {"--reverse-prompt, --stop-strings, --stop-sequences", "stop", NULL, NULL},
    {"--logits-all, --n-probs, --top-logprobs, --output-scores", "logprobs",
     "with --jsonl; --score for a text", NULL},
    {"--prompt-cache", SAME, "the generated text is stored, too", NULL},
    {"--prompt-cache-all", NULL, "--prompt-cache stores the generated text, too", NULL},
    {"--prompt-cache-ro", "load-kv", NULL, NULL},
    {"--slot-save-path, --slot-restore", "save-kv",
     "with --jsonl, all sequences of a run; --load-kv continues them", NULL},
    {"--cache-reuse, --cache-prompt, -cram, --cache-ram, -cram-n-min, --cache-ram-n-min, -crs, "
     "--cache-ram-similarity, --enable-prefix-caching",
     "prefix-cache-mb",
     "with --jsonl; shared prefixes are always computed once. --prefix-cache DIR is a cache on disk",
     NULL},
    {"-ctk, --cache-type-k, -ctv, --cache-type-v, --kv-cache-dtype, --kv-cache-type", "cache-type",
     "f32, bf16, f16, q8 (for its q8_0), q4 (its q4_1) or q4h, for K and V; f32 by default", NULL},
    {"-ctkd, --cache-type-k-draft, -ctvd, --cache-type-v-draft", NULL,
     "--cache-type applies to the draft model, too (bmc-spec)", NULL},
    {"-ctk-first, --cache-type-k-first, -ctk-last, --cache-type-k-last, -ctv-first, "
     "--cache-type-v-first, -ctv-last, --cache-type-v-last",
     NULL, "--cache-type is the type of all layers", NULL},
    {"-khad, --k-cache-hadamard, -vhad, --v-cache-hadamard", "cache-type",
     "q4h: 4 bits of K and V after a Hadamard transform", NULL},
    {"-fa, --flash-attn, -no-fa, --no-flash-attn, --attn-implementation, --attention-backend", "attn",
     "fused is the default", NULL},
    {"-nkvo, --no-kv-offload, -kvo, --kv-offload, -dt, --defrag-thold, --swa-full, --swa-compress, "
     "-kvu, --kv-unified, --no-kv-unified",
     NULL, "--kv chooses how the cache is allocated", NULL},
    {"-dkvc, --dump-kv-cache", "save-kv", "bmc-convert --info prints the contents of a snapshot", NULL},
    {"--block-size", "kv", "paged:16 or paged:32", NULL},
    {"--gpu-memory-utilization, --mem-fraction-static", "memory", "a size, for the cache", NULL},
    {"--swap-space, --cpu-offload-gb", "kv", "headwise:ram=SIZE offloads part of the cache to a file",
     NULL},
    {"--rope-scaling, --rope-scale, --rope-freq-base, --rope-freq-scale, --yarn-orig-ctx, "
     "--yarn-ext-factor, --yarn-attn-factor, --yarn-beta-slow, --yarn-beta-fast, --override-kv, -okv, "
     "-rcache, --rope-cache, --hf-overrides",
     NULL, "RoPE scaling and all other settings come from the model file", NULL},
    {"--embedding, --embeddings", "embed", "of decoder models", NULL},
    {"--pooling", SAME, "with --embed; by default what the model declares, or mean", NULL},
    {"--embd-normalize", "no-normalize",
     "with --embed; embeddings have unit length, unless the model declares otherwise", NULL},
    {"--embd-output-format, --embd-separator", NULL,
     "--embed prints lines of JSON, one for each line of text", NULL},
    {"--attention, --rerank, --reranking, --embd-bge-small-en-default, "
     "--embd-e5-small-en-default, --embd-gte-small-default",
     NULL, "encoder models and reranking are not implemented", NULL},
    {"--mlock", SAME, NULL, NULL},
    {"-thp, --transparent-huge-pages", "hugepages", NULL, NULL},
    {"--numa", SAME,
     "without a value; it is llama.cpp's distribute, and places weights and cache, too; numactl does "
     "isolate and numactl",
     NULL},
    {"--mmap, --no-mmap, -dio, --direct-io, --low-cpu-mem-usage", NULL,
     "the model file is mapped, or copied by --hugepages; --alloc thp is for the cache", NULL},
    {"-rtr, --run-time-repack, --repack, --no-repack, -nr", NULL,
     "model files are stored repacked (bmc-convert)", NULL},
    {"-ngl, --gpu-layers, --n-gpu-layers, -sm, --split-mode, -ts, --tensor-split, -mg, --main-gpu, "
     "-dev, --device, --list-devices, -ngld, --gpu-layers-draft, --n-gpu-layers-draft, -devd, "
     "--device-draft, -cuda, --cuda-params, -op, --offload-policy, --op-offload, --no-op-offload, "
     "-fit, --fit, --fit-margin, -gr, --graph-reuse, --enforce-eager, -no-gr, --no-graph-reuse, -gfm, "
     "--gpu-fit-margin, --max-gpu, -gap, --graph-attn-precision, -grt, --graph-reduce-type, -sas, "
     "--scheduler-async, -smf16, --split-mode-f16, -smf32, --split-mode-f32, -smgs, "
     "--split-mode-graph-scheduling, -wgt, --worst-graph-tokens, -no-ooae, "
     "--no-offload-only-active-experts, -mea, --max-extra-alloc",
     NULL, "there is only the CPU", NULL},
    {"-ot, --override-tensor, -cmoe, --cpu-moe, -ncmoe, --n-cpu-moe", NULL,
     "all tensors are on the CPU, those of experts, too", NULL},
    {"-mla, --mla-use", NULL, "MLA always runs with absorbed projections, in prefill and decoding",
     NULL},
    {"-fdn, --fused-delta-net", NULL, "Gated DeltaNet layers need no option", NULL},
    {"-dsa, --dsa, -dsatk, --dsa-top-k, -fidx, --fused-indexer-topk, -ictk, --indexer-cache-type-k",
     NULL, "DeepSeek's sparse attention is not implemented", NULL},
    {"-ser, --smart-expert-reduction", NULL, "a token uses as many experts as the model sets", NULL},
    {"-ger, --grouped-expert-routing", NULL, "experts are routed, in groups or not, as the model sets",
     NULL},
    {"-fmoe, --fused-moe, -no-fmoe, --no-fused-moe, -no-fug, --no-fused-up-gate, -no-mmad, "
     "--no-fused-mul-multiadd, -muge, --merge-up-gate-experts, -mqkv, --merge-qkv",
     NULL, "no option fuses operations or merges matrices", NULL},
    {"--enable-expert-parallel", "parallelism", "mpirun -n N, with --parallelism expert", NULL},
    {"--prefetch-experts, --prefetch-experts-threads, --defer-experts", "experts",
     "ram=SIZE reads experts that do not fit from the model file", NULL},
    {"--rpc", "parallelism", "processes are started by mpirun, on one host or several", NULL},
    {"-tp, --tensor-parallel-size", "parallelism", "mpirun -n N, with --parallelism tensor", NULL},
    {"--pipeline-parallel-size", "parallelism", "mpirun -n N, with --parallelism pipeline", NULL},
    {"-dp, --data-parallel-size", "parallelism", "mpirun -n N, with --parallelism data", NULL},
    {"-hf, -hfr, --hf-repo, -hff, --hf-file, -hfd, -hfrd, --hf-repo-draft, -hfv, -hfrv, --hf-repo-v, "
     "-hffv, --hf-file-v, -hft, --hf-token, -mu, --model-url, --offline, --revision, --download-dir, "
     "--cache-dir",
     NULL, "nothing is downloaded; bmc-convert takes a folder or a GGUF file", NULL},
    {"--fim-qwen-1.5b-default, --fim-qwen-3b-default, --fim-qwen-7b-default, --tts-oute-default, -mv, "
     "--model-vocoder, --tts-use-guide-tokens",
     NULL, "nothing is downloaded, and there is no speech; -m takes a converted model", NULL},
    {"--trust-remote-code", NULL, "no code of a model is executed", NULL},
    {"--lora", SAME, "a PEFT folder, too; a factor may follow a colon", NULL},
    {"--lora-scaled, --lora-modules, --enable-lora", "lora",
     "a file or folder, and a factor after a colon", NULL},
    {"--lora-init-without-apply, --control-vector, --control-vector-scaled, "
     "--control-vector-layer-range",
     NULL, "adapters given with --lora are used from the start; there are no control vectors", NULL},
    {"--mmproj, --mmproj-url, --mmproj-auto, --no-mmproj, --no-mmproj-offload, --image, "
     "--image-min-tokens, --image-max-tokens, --audio, --video, -tm, --threads-mtmd, --mtmd-kq-type",
     NULL, "prompts are text: images and audio are not read", NULL},
    {"-md, --model-draft", "model-draft", NULL, "bmc-spec"},
    {"-draft, --speculative-model, --speculative-config, --assistant-model", "draft",
     "a model file with the same vocabulary", "bmc-spec"},
    {"--draft-max, --draft, --draft-n", "draft-max", NULL, "bmc-spec"},
    {"--spec-draft-n-max, --num-speculative-tokens, --num-assistant-tokens", "draft-max", NULL,
     "bmc-spec"},
    {"--draft-min, --draft-n-min, --draft-p-min, --draft-p-split, --p-split, -ps, --spec-autotune, "
     "--spec-draft-n-min",
     NULL, "the draft length adapts; --tree drafts trees (bmc-spec)", NULL},
    {"-mtp, --multi-token-prediction", "draft", "-d self drafts with the layer in the model's own file",
     "bmc-spec"},
    {"--spec-type, --spec-stage, --spec-ngram-size-n, --spec-ngram-size-m, --spec-ngram-min-hits, "
     "--suffix-max-depth, --suffix-pattern-len, "
     "--prompt-lookup-num-tokens, -no-mtp, --no-multi-token-prediction, -mtprot, "
     "--mtp-requantize-output-tensor, --spec-ckpt-mode, --recurrent-ckpt-mode, --spec-replace, "
     "--draft-params",
     NULL, "drafts come from --draft, --lookup, --suffix or --recycle of bmc-spec", NULL},
    {"--suffix-corpus, -lcs, --lookup-cache-static, -lcd, --lookup-cache-dynamic", "lookup-corpus",
     "a text file, with --suffix; no cache file is read", "bmc-spec"},
    {"-cd, --ctx-size-draft", "draft-ctx-size", NULL, "bmc-spec"},
    {"--outtype", "type", "whose types bmc-convert --help lists", "bmc-convert"},
    {"--allow-requantize", NULL, "bmc-convert --type requantises without an option", NULL},
    {"--pure", NULL,
     "bmc-convert --type q4_k is pure but for embedding tables; --tensor-type 'embed.weight=q4_k' "
     "includes them",
     NULL},
    {"--output-tensor-type", "tensor-type", "'head.weight=TYPE'", "bmc-convert"},
    {"--token-embedding-type", "tensor-type", "'embed.weight=TYPE'", "bmc-convert"},
    {"--keep-split", NULL, "bmc-convert writes one file, also from a split one", NULL},
    {"--dtype, --torch-dtype, --quantization, --load-in-8bit, --load-in-4bit", "type",
     "types are chosen when a model is converted", "bmc-convert"},
    {"--outfile", "output", NULL, "bmc-convert"},
    {"--no-bos", "no-bos", NULL, "bmc-convert"},
    {"--check-tensors, -vq, --validate-quants", "verify", NULL, "bmc-convert"},
    {"-sys, --system-prompt, --system-message", "system", "with --chat", NULL},
    {"-sysf, --system-prompt-file, -spf", NULL, "--system \"$(cat FILE)\" takes a file's text", NULL},
    {"--chat-template", SAME, "the name of a format, or FILE.jinja; a template is not given as text",
     NULL},
    {"--chat-template-file", "chat-template", "the file's name ends with .jinja", NULL},
    {"--chat-template-kwargs", SAME, NULL, NULL},
    {"-sp, --special", SAME, "the token that ends a text is not part of it", NULL},
    {"--no-parse-special", SAME, "of llama-tokenize, for prompts, too", NULL},
    {"--split-special-tokens", "no-parse-special", NULL, NULL},
    {"--skip-special-tokens, --add-special-tokens, --add-generation-prompt", NULL,
     "special tokens are printed with --special only; the tokenizer and the chat template add theirs",
     NULL},
    {"-cnv, --conversation, -if, --interactive-first", "interactive", "with --chat", NULL},
    {"-i, --interactive", SAME, "with --chat; /help lists the commands", NULL},
    {"--jinja, --no-jinja", NULL, "the model's Jinja template is used if it has one", NULL},
    {"--in-prefix, --in-prefix-bos, --in-suffix, --skip-chat-parsing, --peg, --no-prefill-assistant",
     NULL, "a .chat file has what stands around messages, bmc-chat(5)", NULL},
    {"--reasoning, --reasoning-format, -rea, --reasoning-budget, --reasoning-budget-message, "
     "--reasoning-tokens, --reasoning-parser",
     NULL, "reasoning is printed as the model writes it", NULL},
    {"--spm-infill, --infill", NULL, "write the fill-in-the-middle tokens into the prompt", NULL},
    {"-no-cnv, --no-conversation, -st, --single-turn", NULL, "a run without -i answers once", NULL},
    {"--no-display-prompt", NULL, "the prompt is not printed unless --echo is given", NULL},
    {"--stream, --no-stream, --streaming", NULL, "text is always printed as it is generated", NULL},
    {"-o, --output, --output-file", NULL, "redirect standard output", NULL},
    {"--num-beams, --beam-width, --use-beam-search", "beams", NULL, NULL},
    {"--length-penalty, --early-stopping", SAME, "transformers' options, with --beams", NULL},
    {"--num-beam-groups, --diversity-penalty", NULL, "--beams searches without groups", NULL},
    {"--num-return-sequences, --best-of", "n-best", "with --beams; bmc-spec --samples samples", NULL},
    {"--host, --port, --path, --api-prefix, --api-key, --api-key-file, --ssl-key-file, "
     "--ssl-cert-file, -to, --timeout, --threads-http, --webui, --no-webui, --metrics, --slots, "
     "--no-slots, --props, -sps, --slot-prompt-similarity, --ctx-checkpoints-eviction, "
     "--ctx-checkpoints-interval, --ctx-checkpoints-tolerance, -ctx-ckpt-e, -ctx-ckpt-i, -ctx-ckpt-t, "
     "--sql-save-file, --sqlite-zstd-ext-file, --ui-mcp-proxy, --webui-mcp-proxy, -a, --alias, "
     "--served-model-name, -ctx-ckpt, --ctx-checkpoints, --send-done",
     NULL, "there is no server: --jsonl reads requests from a file or a pipe", NULL},
    {"-v, --verbose, --log-verbose, -lv, --verbosity, -co, --color, --simple-io, --log-file, "
     "--log-colors, --log-verbosity, --log-prefix, --log-timestamps, --log-format, --logdir, -ld, "
     "--minilog",
     NULL, "the text goes to standard output, statistics to standard error", NULL},
    {"--verbose-prompt", "tokenize", "prints token ids and pieces of a text", NULL},
    {"--log-disable, --no-perf", "quiet", NULL, NULL},
    {"-ptc, --print-token-count", "stats", "the statistics count tokens", NULL},
    {"--warmup, --no-warmup, -wb, --warmup-batch", NULL, "there is no warm-up pass", NULL},
    {"--usage", "help", NULL, NULL},
    {"--completion-bash", NULL, "\"make install\" installs completions for bash, zsh and fish", NULL},
    {"--perplexity, --all-logits, llama-perplexity", "score", NULL, NULL},
    {"--ppl-stride", "stride", NULL, NULL},
    {"--ppl-output-type", "format", NULL, NULL},
    {"--chunks, --from-chunk", NULL, "--score scores the whole text", NULL},
    {"--kl-divergence, --kl-divergence-base, --save-all-logits", NULL,
     "--score prints log-probabilities and the perplexity; divergences are not computed", NULL},
    {"--hellaswag, --hellaswag-tasks, --winogrande, --winogrande-tasks, --multiple-choice, "
     "--multiple-choice-tasks",
     NULL, "--score --jsonl prints the log-probability of each text, which such tasks compare", NULL},
    {"-ofreq, --output-frequency, --save-frequency, --process-output, --no-ppl, --imatrix",
     "save-imatrix", "with --score; bmc-convert --imatrix reads the file", NULL},
    {"-pps, -npp, -ntg, -npl, -nrep, --n-repetitions, --sweep-memory, --sweep-stride, --n-prompt, "
     "--n-gen, --n-depth",
     NULL, "bmc-prof bench measures prefill, decoding, batches and depths", NULL},
    {"-dr, --dry-run", NULL, "bmc-prof memory prints the memory that a cache will take", NULL},
    {"--junk, --pos, --context-file, --chunk-size, --chunk-separator, --method, --pca-batch, "
     "--pca-iter, --positive-file, --negative-file, --output-format, --output-tensor-name, "
     "--output-draft, --draft-output, --draft-output-file",
     NULL, "an option of an example program of llama.cpp", NULL},
    {"llama-tokenize", "tokenize", NULL, NULL},
};

/* ---- finding the most similar name ---- */

enum { NAME_MAX_BYTES = 31 };

/* Edit distance between an option name and what the user typed (`written`); 0 if that is a proper
 * prefix of the name, SIZE_MAX if the two are too different. */
static size_t name_distance(const char *written, size_t len, const char *name)
{
    const size_t n = strlen(name);
    char word[NAME_MAX_BYTES + 1] = "";
    if (len < 2 || len > NAME_MAX_BYTES || n > NAME_MAX_BYTES)
        return SIZE_MAX;
    if (len >= 3 && len < n && memcmp(written, name, len) == 0)
        return 0;
    memcpy(word, written, len);
    const size_t distance = edit_distance(word, name);
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

/* ---- the error message ---- */

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

/* An unknown option: as the user typed it, and with dashes for the underscores that other programs
 * use. */
struct unknown {
    const char *word;
    int len;
    char name[64]; /* "" if longer than any name */
};

static struct unknown read_unknown(const char *word, size_t len)
{
    struct unknown unknown = {.word = word, .len = (int)len};
    for (size_t i = 0; i < len && len < sizeof unknown.name; i++)
        unknown.name[i] = word[i];
    for (char *at = unknown.name; (at = strchr(at, '_'));)
        *at = '-';
    return unknown;
}

/* Of a short name in a row, the long name behind it, without dashes; "" if none follows, or of a long name. */
static void long_beside(const struct foreign *row, const char *word, char name[64])
{
    const char *at = word[1] != '-' ? strstr(row->names, word) : NULL;
    const char *dashes = at ? strstr(at, ", --") : NULL;
    const bool follows = dashes && dashes == at + strlen(word);
    snprintf(name, 64, "%.*s", follows ? (int)strcspn(dashes + 4, ",") : 0, follows ? dashes + 4 : "");
}

/* Exits with a message about the equivalent of another program's option, if this program has it or
 * no equivalent exists. */
static void explain_foreign(const struct program *program, const struct unknown *unknown)
{
    const char *word = unknown->word;
    const int len = unknown->len;
    const struct foreign *row = find_foreign(unknown->name, strlen(unknown->name));
    if (!row || is_kind(row, OTHER))
        return;
    if (is_kind(row, SAME)) {
        char name[64];
        long_beside(row, unknown->name, name);
        if (*name && has_long(program, name))
            opt_usage_error(program, "unknown option %.*s: here it is --%s", len, word, name);
        return;
    }
    if (!row->ours)
        opt_usage_error(program, "unknown option %.*s: %s", len, word, row->note);
    if (has_long(program, row->ours))
        opt_usage_error(program, "unknown option %.*s: here it is --%s%s%s", len, word, row->ours,
                        row->note ? ", " : "", row->note ? row->note : "");
    if (row->where)
        opt_usage_error(program, "unknown option %.*s: it is --%s of %s", len, word, row->ours,
                        row->where);
}

/* If `word` is a short option with its value attached ("-n5"), the length of the option ("-n");
 * else 0. */
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
    const struct unknown unknown = read_unknown(word, len);
    const size_t dashes = strspn(word, "-");
    const char *near =
        *unknown.name ? nearest_name(program, unknown.name + dashes, len - dashes) : NULL;
    const size_t glued = dashes == 1 ? glued_option(program, word, len) : 0;
    explain_foreign(program, &unknown);
    if (near)
        opt_usage_error(program, "unknown option %.*s; did you mean --%s?", (int)len, word, near);
    if (glued)
        opt_usage_error(program, "unknown option %.*s; did you mean %.*s %.*s?", (int)len, word,
                        (int)glued, word, (int)(len - glued), word + glued);
    opt_usage_error(program, "unknown option %.*s", (int)len, word);
}

void opt_unexpected(const struct program *program, const char *word, bool numa, const char *advice)
{
    if (numa && text_choice("distribute|isolate|numactl", word) != SIZE_MAX)
        opt_usage_error(program,
                        "unexpected \"%s\": --numa takes no value; it is llama.cpp's distribute, and "
                        "numactl does isolate and numactl",
                        word);
    opt_usage_error(program, "unexpected \"%s\": %s", word, advice);
}

/* ---- the man page ---- */

/* Prints option names such that man does not hyphenate them. */
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
