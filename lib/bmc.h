/* libbmc: LLM inference on CPUs, and on GPUs through OpenCL. See libbmc(3).
 *
 *    #include <bmc.h>
 *    cc program.c $(pkg-config --cflags --libs bmc)
 *
 * Functions that can fail return 0, or one of the negative codes of enum bmc_status with one
 * sentence in `error`, which may be NULL; after a success it has no meaning. Nothing here prints, exits or reads
 * the environment. Strings and arrays of arguments are read during the call only; functions and their `arg` are kept.
 * Pointers are not NULL where nothing else is said: functions that can fail then return BMC_INVALID, the others 0.
 *
 * Threads may share everything: calls on one context, on its samplers and on one text take turns, those on a model
 * need not. What a function points to, as bmc_tokens() does, is valid until the next call of any thread that changes it. A
 * function of the caller, such as `progress`, may use all objects but the context whose function has called it, and
 * its samplers: of these, functions that can fail return BMC_BUSY, the others 0, and nothing happens. What is closed
 * must not be used again; it is freed when its calls have ended and the contexts, samplers and texts that were opened
 * from it are closed, which may thus be closed in any order.
 *
 * Structures of options begin with their size, so that later versions of the library can add
 * members: set it to sizeof and the other members to zero, which always means the default. */
#ifndef BMC_H
#define BMC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* The library's version, as "0.1.0"; and the compiler and the flags that it was built with. */
const char *bmc_version(void);
const char *bmc_build(void);

/* ---- errors ---- */

enum bmc_status {
    BMC_OK = 0,
    BMC_FAILED = -1,    /* any other reason */
    BMC_INVALID = -2,   /* an argument is wrong, such as an unknown name or token id */
    BMC_NO_MEMORY = -3, /* out of memory */
    BMC_BAD_FILE = -4,  /* a file cannot be read or written, is damaged or does not fit the model */
    BMC_FULL = -5,      /* the tokens do not fit in the context */
    BMC_CANCELLED = -6, /* the option `progress` asked for it */
    BMC_BUSY = -7,      /* a function of the caller uses the object whose function has called it */
};

/* The sentence of an error, after a function has failed. */
struct bmc_error {
    char text[512];
};

/* ---- models ---- */

/* A memory-mapped model file. Opening reads its header only; processes share its pages. */
struct bmc_model;

int bmc_model_open(struct bmc_model **model, const char *path, struct bmc_error *error);

/* How a model is opened; names are those of the options of bmc-gen(1). */
struct bmc_model_options {
    size_t size;             /* sizeof(struct bmc_model_options) */
    const char *const *lora; /* [n_lora]: LoRA adapters, folders as PEFT writes them or GGUF files */
    size_t n_lora;
    const float *lora_scale; /* [n_lora]: by which they are multiplied; NULL: 1 each */
    const char *models_dir;  /* folder with families/, which adapters need; NULL: "." */
    /* memory for the weights of experts, as "ram=8G"; NULL: all in memory. Calls on all contexts of the
     * model then take turns */
    const char *experts;
    int mlock;     /* not 0: locks the model in memory */
    int hugepages; /* not 0: copies the model to transparent huge pages */
    /* not 0: binds the calling thread and its worker threads to NUMA nodes, and copies the model so that each
     * node has the weights that its threads read; on machines with one node it changes nothing. The thread
     * stays bound, also after errors; contexts of the model belong in it, with `threads` threads */
    int numa;
    int threads; /* of these contexts, for `numa`; 0: one per core of the affinity, or the CPU quota */
    /* Folder of converted models, which is created if it is missing: with it, `path` may be a GGUF file or a Hugging Face
     * folder, which is converted on first use and mapped from there later; `models_dir` has its model family. Programs
     * share the folder $XDG_CACHE_HOME/bmc. NULL: `path` is a .bmc model */
    const char *convert_dir;
    /* size of that folder, as "32G": the least recently used models are removed; NULL: 64G */
    const char *convert_size;
};

/* bmc_model_open() with options, which may be NULL. Adapters add up: every sequence uses all of them, unless
 * bmc_set_lora(), or the member "lora" of a request, says otherwise. The draft model of a context is locked and
 * copied as the model is. */
int bmc_model_open_with(struct bmc_model **model, const char *path,
                        const struct bmc_model_options *options, struct bmc_error *error);
void bmc_model_close(struct bmc_model *model); /* NULL is accepted */

size_t bmc_model_vocab(const struct bmc_model *model);     /* number of logits */
size_t bmc_model_context(const struct bmc_model *model);   /* context length, in tokens */
size_t bmc_model_hidden(const struct bmc_model *model);    /* elements of a hidden state */
size_t bmc_model_embedding(const struct bmc_model *model); /* elements of an embedding */
size_t bmc_model_lora(const struct bmc_model *model);      /* number of LoRA adapters */

/* True for tokens that end a text (EOS). */
int bmc_is_eog(const struct bmc_model *model, uint32_t id);

/* ---- tokens ---- */

/* Token ids of `len` bytes of UTF-8 text, with BOS and EOS as the model's own tokenizer adds
 * them; special tokens spelled in the text are parsed. *ids is allocated with malloc(), the caller
 * frees it; on error it is NULL. */
int bmc_tokenize(const struct bmc_model *model, const char *text, size_t len, uint32_t **ids,
                 size_t *n_ids, struct bmc_error *error);

enum bmc_tokenize_flags {
    BMC_NO_SPECIAL = 1, /* without BOS and EOS */
    BMC_PLAIN = 2,      /* special tokens spelled in the text are plain text */
};

/* bmc_tokenize() with flags. */
int bmc_tokenize_flags(const struct bmc_model *model, const char *text, size_t len, unsigned flags,
                       uint32_t **ids, size_t *n_ids, struct bmc_error *error);

/* The text of token ids, allocated with malloc() and zero-terminated; the caller frees it. Special
 * tokens have no text, incomplete characters become U+FFFD. On error *text is NULL. */
int bmc_detokenize(const struct bmc_model *model, const uint32_t *ids, size_t n_ids, char **text,
                   struct bmc_error *error);

/* ---- contexts ---- */

/* The KV cache of one or more sequences and the buffers of forward passes. */
struct bmc_context;

enum bmc_log_level { BMC_LOG_INFO, BMC_LOG_WARNING };

/* Names are those of the options of bmc-gen(1) and bmc-spec(1); NULL is the default there. */
struct bmc_options {
    size_t size;               /* sizeof(struct bmc_options) */
    size_t context;            /* maximum tokens per sequence; 0: the model's, at most 4096 */
    size_t sequences;          /* number of sequences; 0: one */
    int threads;               /* of decoding; 0: one per core of the affinity, or the CPU quota */
    int threads_batch;         /* of prompts; 0: as `threads` */
    const char *kv;            /* cache policy, as "bmc" or "paged:32" */
    const char *cache_type;    /* type of the cache: "q8", "k=q8,v=q4", "q8:scales=FILE" */
    const char *attn;          /* attention kernels */
    const char *kernels;       /* instruction set, as of --isa */
    const char *precision;     /* precision of products */
    size_t chunk;              /* maximum tokens of a forward pass over prompts; 0: 512 */
    int hidden_states;         /* not 0: bmc_eval() can return hidden states */
    const char *chat_template; /* as of --chat-template; NULL: the model's own */
    /* folder with the formats that `chat_template` names, and of tool calls; NULL: "." */
    const char *models_dir;
    /* Speculative decoding in bmc_generate(): the same output, greedy or sampled, in fewer forward passes. A draft model or draft head (EAGLE), a file, or "self": the MTP layer in the
     * model's own file; a drafter without a model: "lookup", "suffix", "recycle" or "none"; without a draft model it
     * is "suffix", except with `beams`, KV offload and models with recurrent layers. Lookup and suffix
     * decoding can be combined with a model. */
    const char *draft, *drafter;
    size_t draft_max;  /* draft tokens per sequence and pass; 0: adapts to measured gain */
    size_t draft_tree; /* not 0: draft trees of so many tokens instead of chains */
    int draft_always;  /* not 0: drafting never pauses where it does not pay */
    /* folder with KV entries of prompts that bmc_generate() reuses, also by other contexts and processes; NULL:
     * none */
    const char *prefix_cache;
    size_t prefix_cache_bytes; /* maximum size of that folder; 0: 4 GiB */
    /* Called by bmc_eval(), bmc_score() and bmc_embed() after each forward pass: `done` of `total` tokens
     * have been processed. Not 0 cancels the call, which then fails with BMC_CANCELLED. */
    int (*progress)(void *arg, size_t done, size_t total);
    /* Gets sentences about what the context has chosen, and about failures it can do without. */
    void (*log)(void *arg, enum bmc_log_level level, const char *sentence);
    void *arg; /* of these two */
    /* tuned profile of bmc-tune(1), from which cache policy and its number of allocations T follow,
     * unless it was made with other kernels or threads; NULL: none */
    const char *profile;
    const char *alloc; /* how cache memory is allocated: pool, malloc, mmap or thp; NULL: pool */
    int attend_valid;  /* not 0: attention skips the padding of the cache (--attend valid) */
    int lenient;       /* not 0: unknown members of requests are ignored */
    /* Beam search in bmc_generate(), 0: none. A request occupies so many sequences, and has the best beams as
     * its results. `sequences` is at least this number, which is its default then. */
    size_t beams;
    size_t n_best; /* results of a request, at most `beams`; 0: all */
    /* score of a beam: the sum of its log-probabilities by its length to this power; NULL: 1 */
    const double *length_penalty;
    /* when a search ends that has as many finished beams as `beams`, as of --early-stopping: yes, no or never;
     * NULL: no */
    const char *early_stopping;
    /* instead of `cache_type`: types for each layer that together cost at most this mean KL divergence, and the file of costs
     * that bmc-prof(1) cache-types measured, as "0.01:FILE"; NULL: none */
    const char *cache_kld;
    /* what computes forward passes, as of --backend: "cpu" or "opencl"; NULL: "cpu" */
    const char *backend;
};

/* Creates a context. `options` may be NULL: all defaults. On error *context is NULL. */
int bmc_context_open(struct bmc_context **context, const struct bmc_model *model,
                     const struct bmc_options *options, struct bmc_error *error);
void bmc_context_close(struct bmc_context *context); /* NULL is accepted */

size_t bmc_context_size(const struct bmc_context *context);      /* maximum tokens per sequence */
size_t bmc_context_sequences(const struct bmc_context *context); /* number of sequences */

/* What a context has done since it was opened. */
struct bmc_stats {
    size_t size; /* sizeof(struct bmc_stats), set by the caller */
    /* bmc_generate(): prompt tokens that were evaluated, that sequences of the context had, and that the
     * prefix cache on disk had; generated tokens; times */
    size_t prompt_tokens, reused_tokens, disk_tokens, generated_tokens;
    double prompt_ms, generate_ms;
    /* speculative decoding: verified drafts (one per sequence and pass), tokens generated by them, draft
     * tokens, accepted ones; times that drafting paused */
    size_t draft_steps, draft_step_tokens, draft_tokens, draft_accepted, draft_pauses;
    size_t kv_bytes, kv_allocations; /* of the KV cache now; reallocations so far */
};

/* Sets the members of *stats; fails only if its size is wrong. */
int bmc_context_stats(const struct bmc_context *context, struct bmc_stats *stats,
                      struct bmc_error *error);

/* ---- sequences: those of a context have the indices 0 to sequences - 1 ---- */

/* New tokens of a sequence, and what bmc_eval() returns of them. */
struct bmc_input {
    size_t size;         /* sizeof(struct bmc_input) */
    size_t sequence;     /* each at most once per call */
    const uint32_t *ids; /* [n_ids]: tokens to append, at least one */
    size_t n_ids;
    size_t n_outputs;        /* tokens whose outputs are wanted; 0: none */
    const size_t *output_at; /* [n_outputs]: their indices in `ids`, ascending; NULL: the last ones */
    float *logits; /* [n_outputs][vocab], written: logits of the tokens that follow; or NULL */
    float *hidden; /* [n_outputs][hidden], written: states after the final norm; or NULL */
};

/* Appends tokens to sequences, any number to each, and computes the requested outputs. Outputs do not
 * depend on the other sequences, nor on how the tokens are divided among calls.
 *
 * On error all sequences are as they were before, and outputs are undefined. Exceptions, where earlier
 * states are not kept: a sequence is empty if the rolling cache (policy shift) has evicted some of its
 * entries. */
int bmc_eval(struct bmc_context *context, const struct bmc_input *inputs, size_t n,
             struct bmc_error *error);

/* Tokens in a sequence; 0 for an index out of range, or if the context is in use (BMC_BUSY). */
size_t bmc_length(const struct bmc_context *context, size_t sequence);

/* The ids of these tokens, valid until the sequence changes; NULL for an empty one. */
const uint32_t *bmc_tokens(const struct bmc_context *context, size_t sequence);

/* Empties a sequence and announces how many tokens it will have: beyond the original context, the rotary
 * frequencies of models with dynamic RoPE scaling depend on that. Without this call it is the context. */
int bmc_begin(struct bmc_context *context, size_t sequence, size_t length, struct bmc_error *error);

/* Sets factors[n] by which the LoRA adapters of the model are multiplied for a sequence: 0 for those that it does
 * not use. NULL, with n = 0: 1 each, which they are at first. Empties the sequence if that changes any. Requests
 * of bmc_generate() set those of the sequence that serves them; a fork has those of its origin. */
int bmc_set_lora(struct bmc_context *context, size_t sequence, const float *factors, size_t n,
                 struct bmc_error *error);

/* Truncates a sequence to its first `n` tokens, if it has more, and returns the number that remains;
 * 0 frees its cache. Fewer than `n` remain in models with recurrent state, which is kept at few
 * positions, and none if the rolling cache has evicted entries: evaluate the others again. */
size_t bmc_truncate(struct bmc_context *context, size_t sequence, size_t n);

/* Replaces sequence `to` by the first `n` tokens of `from`, or fewer as for bmc_truncate(); sets
 * *forked, unless that is NULL, to the number. Cache policies that can share memory do so. On error
 * `to` is empty and `from` unchanged; after BMC_INVALID and BMC_BUSY both are as before. */
int bmc_fork(struct bmc_context *context, size_t to, size_t from, size_t n, size_t *forked,
             struct bmc_error *error);

/* ---- generation ---- */

/* A prompt, and how it is continued. */
struct bmc_request {
    size_t size; /* sizeof(struct bmc_request) */
    /* A JSON object with the members of a request of bmc-jsonl(5), REQUESTS, such as
     * {"n": 100, "temp": 0.8, "seed": 1, "stop": ["\n"], "json_schema": {..}}; NULL: none.
     * "id", "stream" and "prompt_logprobs" have no effect here: see struct bmc_callbacks and bmc_score(). */
    const char *settings;
    /* The prompt: a text, as that of bmc-gen -p, or token ids; neither if the settings have it, as
     * "messages" of a chat. */
    const char *text; /* zero-terminated UTF-8, or NULL */
    const uint32_t *ids;
    size_t n_ids;
};

enum bmc_finish {
    BMC_FINISH_LENGTH, /* "n" tokens were generated, or the context is full */
    BMC_FINISH_EOS,    /* an EOS token followed, or the constraint is complete */
    BMC_FINISH_STOP,   /* a stop string followed */
    BMC_FINISH_CANCELLED,
    BMC_FINISH_ERROR
};

struct bmc_logprob {
    uint32_t id;
    float logprob; /* natural logarithm, before sampling */
};

/* The result of a request; bmc_result_release() frees what it points to. */
struct bmc_result {
    size_t size;            /* sizeof(struct bmc_result), set by the caller */
    int status;             /* 0, or why the request failed: enum bmc_status */
    enum bmc_finish finish; /* with BMC_FINISH_ERROR, tokens up to the failure are there */
    size_t n_prompt;        /* tokens of the prompt */
    uint32_t *ids;          /* [n_ids]: generated tokens */
    size_t n_ids;
    char *text; /* of these tokens, without the stop string: valid UTF-8 and zero-terminated */
    size_t text_len;
    struct bmc_logprob *logprobs; /* [n_ids][1 + n_best]: each token, then the most likely ones; NULL:
                                     not asked for by "logprobs" */
    size_t n_best;
    size_t sequence; /* that has the KV entries of prompt and answer, or SIZE_MAX: none */
    /* of the last token's logits, as bmc-gen reports it for a run; of all choices */
    char logits_hash[17];
    struct bmc_error error;
    /* With the setting "n_choices", the next of the choices, with beam search the next best beam; NULL: there are
     * no more. bmc_result_release() of the first one releases them. */
    struct bmc_result *next;
    double score; /* of a beam: see `length_penalty`; otherwise 0 */
};

struct bmc_callbacks {
    size_t size; /* sizeof(struct bmc_callbacks) */
    void *arg;
    /* New text and tokens of request `request`; the text may be empty. Characters are complete, and
     * text that may be the beginning of a stop string comes later. Not 0 cancels the request. */
    int (*text)(void *arg, size_t request, const char *text, size_t len, const uint32_t *ids,
                size_t n_ids);
    /* `done` of `total` prompt tokens of all requests in flight are in the cache. */
    void (*prefill)(void *arg, size_t done, size_t total);
    const volatile int *cancelled; /* once not 0, ends the call before the next forward pass */
    /* In place of `text`, which gets the first choice of a request only: that of choice `choice`, from 0. Not
     * 0 cancels all choices. */
    int (*choice_text)(void *arg, size_t request, size_t choice, const char *text, size_t len,
                       const uint32_t *ids, size_t n_ids);
};

/* Generates the continuations of n requests, as many at a time as the context has sequences; when one
 * ends, the next one starts. Returns 0, or the status and sentence of the first request that failed; the
 * others have their results. results[n] are all set, and must be released, unless the size of a structure
 * is wrong or `requests` or `results` is NULL: then it returns BMC_INVALID and nothing has happened.
 * Random numbers of request i are those of line i of bmc-gen --jsonl. `callbacks` may be NULL.
 *
 * Prompts reuse KV entries of sequences of the context that begin with the same tokens; sequences are
 * overwritten as needed. Afterwards a sequence has the tokens whose entries it has: of a request the
 * prompt and all but the last token of the answer. Sequences of requests that failed are empty.
 *
 * With beam search all sequences are empty before and afterwards. Results are those of bmc-gen --beams; "n_choices",
 * sampling, penalties and stop strings fail. Text arrives when a search has ended, of its best beam; before, `text` is called
 * without text after each pass. */
int bmc_generate(struct bmc_context *context, const struct bmc_request *requests,
                 struct bmc_result *results, size_t n, const struct bmc_callbacks *callbacks,
                 struct bmc_error *error);
void bmc_result_release(struct bmc_result *result); /* NULL is accepted */

/* Renders a conversation with the model's chat template: a JSON object with "messages" and possibly
 * "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template_kwargs" and
 * "parse_special", as in requests. *ids, and *text unless `text` is NULL, are allocated with malloc(). */
int bmc_chat_render(struct bmc_context *context, const char *conversation, uint32_t **ids,
                    size_t *n_ids, char **text, struct bmc_error *error);

/* ---- sampling from logits ---- */

/* Sampler settings and a constraint; random numbers depend on the seed, `stream` and the position. */
struct bmc_sampler;

/* `settings` as in struct bmc_request: those of samplers, "seed", "ignore_eos" and constraints. */
int bmc_sampler_open(struct bmc_sampler **sampler, struct bmc_context *context, const char *settings,
                     uint64_t stream, struct bmc_error *error);
void bmc_sampler_close(struct bmc_sampler *sampler); /* NULL is accepted */

/* Samples the token after ids[n_ids], the whole text so far, from logits[vocab]. With a constraint
 * the sampler moves on by that token. On error it stays where it is, and *id is unchanged. */
int bmc_sample(struct bmc_sampler *sampler, const float *logits, const uint32_t *ids, size_t n_ids,
               uint32_t *id, struct bmc_error *error);

/* ---- text of tokens, as they arrive ---- */

struct bmc_text;

/* The text that follows the prompt ids[n_ids], which may end in an incomplete character. */
int bmc_text_open(struct bmc_text **text, const struct bmc_model *model, const uint32_t *ids,
                  size_t n_ids, struct bmc_error *error);
void bmc_text_close(struct bmc_text *text); /* NULL is accepted */

/* Adds a token, and sets *more to the `len` bytes of text that it completes, possibly none: bytes of
 * incomplete characters are held back. Valid until the next call. On error the token was not added, and *more and
 * *len are unchanged. */
int bmc_text_add(struct bmc_text *text, uint32_t id, const char **more, size_t *len,
                 struct bmc_error *error);

/* Ends the text: what was held back becomes U+FFFD. */
int bmc_text_finish(struct bmc_text *text, const char **more, size_t *len, struct bmc_error *error);

/* ---- scoring, embeddings, reranking: they use sequence 0, which is empty afterwards; results are undefined on error ---- */

/* Sets logprobs[n] to the natural logarithms of the tokens' probabilities, each given those before it;
 * NaN for the first one. Longer texts than the context are scored in windows, half a context apart. */
int bmc_score(struct bmc_context *context, const uint32_t *ids, size_t n, double *logprobs,
              struct bmc_error *error);

/* BMC_POOL_MODEL: what the model declares, or the mean. */
enum bmc_pooling { BMC_POOL_MEAN, BMC_POOL_LAST, BMC_POOL_FIRST, BMC_POOL_MODEL };

/* Sets embedding[bmc_model_embedding()] to the pooled hidden states of the tokens, or to what the model's dense layers make
 * of them; `normalize`: of unit length. */
int bmc_embed(struct bmc_context *context, const uint32_t *ids, size_t n, enum bmc_pooling pooling,
              int normalize, float *embedding, struct bmc_error *error);

/* Sets *score to the relevance of a document for a query, from 0 to 1: by a classifier's head (a cross-encoder), or by the
 * logits of "yes" and "no" of a language model such as Qwen3-Reranker, which is asked with an instruction (NULL: the usual
 * one). Texts are UTF-8 of `query_len` and `document_len` bytes. */
int bmc_rerank(struct bmc_context *context, const char *instruction, const char *query,
               size_t query_len, const char *document, size_t document_len, double *score,
               struct bmc_error *error);

/* ---- snapshots: saved KV caches, bmc-kv(5) ---- */

/* Writes the tokens and KV entries of a sequence to a file, which is replaced once it is complete. On
 * error nothing is left behind. A sequence with factors of its own (bmc_set_lora()) cannot be saved. */
int bmc_save(struct bmc_context *context, size_t sequence, const char *path, struct bmc_error *error);

/* Replaces a sequence by the first one in a file, also of bmc-gen --save-kv. Tokens whose KV entries are
 * not in the file are evaluated. On error the sequence is empty, except after BMC_BUSY, or if there is no such
 * sequence. Its LoRA factors are then 1 each. */
int bmc_load(struct bmc_context *context, size_t sequence, const char *path, struct bmc_error *error);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
