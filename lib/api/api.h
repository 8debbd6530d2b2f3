/* Shared by the files of the public API, bmc.h, which is a thin layer over the internal modules. */
#pragma once

#include <bmc.h>
#include <pthread.h>
#include <stdatomic.h>

#include "decode/session.h"
#include "decode/step_beam.h"
#include "text/ids.h"
#include "kv/kv_scales.h"
#include "kv/kv_sensitivity.h"
#include "model/convert/model_cache.h"
#include "model/model_pages.h"
#include "serve/serve.h"
#include "tune/profile.h"

/* The largest number of threads that options accept. */
enum { THREADS_MOST = 4096 };

/* What models, contexts, samplers and texts of the public API begin with: a lock, so that calls of several threads take
 * turns, and a number of holders, so that an object lives until its calls have ended and what was opened from it
 * is closed. */
struct api_object {
    pthread_mutex_t own, *lock; /* `lock` may be that of `from` */
    atomic_size_t holders;      /* whoever opened it, what was opened from it, calls */
    struct api_object *from;
    void (*free)(struct api_object *object);
};

struct bmc_model {
    struct api_object object;
    struct model *model;
    struct cached_model file;   /* keeps a converted model's file in its folder */
    struct pages_options pages; /* of draft models, too */
    bool mlock;
};

struct bmc_context {
    struct api_object object;
    const struct bmc_model *model;
    struct session *session;
    struct tuned tuned;                /* the option `profile` */
    struct kv_scales kv_scales;        /* those of the option `cache_type` */
    struct kv_chosen_types kv_chosen;  /* those of the option `cache_kld` */
    struct ids *tokens;                /* [sequences]: of the committed entries of each */
    size_t *expected;                  /* [sequences]: length that was announced; 0: the context */
    struct serve serve;                /* what requests share */
    char *chat_template, *models_dir;  /* copies of the options */
    foreign_members ignored, told;     /* that requests had, and that the log has */
    bool hidden_states;                /* forward passes keep hidden states */
    struct api_draft *draft;           /* speculative decoding; NULL: none */
    struct step_beam *beam;            /* beam search; NULL: none */
    struct prefix_store *prefix_store; /* the prefix cache on disk; NULL: none */
    /* of the options */
    int (*progress)(void *arg, size_t done, size_t total);
    void (*log)(void *arg, enum bmc_log_level level, const char *sentence);
    void *arg;
    struct bmc_stats stats; /* of ended calls of bmc_generate() */
    /* scratch of bmc_eval() */
    struct eval_part *part; /* [sequences] */
    size_t *row;            /* [session_max_tokens()] */
    bool *seen;             /* [sequences] */
    struct buf gathered;    /* logits */
};

/* What a public function returns whose work has returned `rc`, 0 or -1 with *err: the status of the error's code,
 * `otherwise` for ERR_FAILED, with the sentence in *error, unless that is NULL. */
int api_status(int rc, const struct err *err, enum bmc_status otherwise, struct bmc_error *error);

/* Copies and locks a model of the options numa, hugepages and mlock of the model that contexts are of. */
int api_place_model(const struct bmc_model *options, const struct model *model,
                    struct err *err) MUST_USE;

/* Copies a sentence to to[size], and replaces options of the command line in it, as "--cache-type", by the names
 * that they have in bmc.h, as "`cache_type`"; not those of a program that the sentence names. */
void api_name_members(const char *from, char *to, size_t size);

/* Copies a structure of the caller, whose size is its first member, to one of this version: the members
 * that it lacks become 0. Fails if it is smaller than `least`, the first version, or if it is larger and
 * members that are unknown here are not 0. `name` is that of the structure. */
int api_read(void *to, size_t size, const void *from, size_t least, const char *name,
             struct err *err) MUST_USE;

/* Copies a result to the caller's structure of `size` bytes, whose first member keeps it; what is unknown
 * here becomes 0. */
void api_write(void *to, size_t size, const void *from, size_t from_size);

/* Tells the caller's `progress`, if any. False: the call is cancelled, and err says so. */
bool api_progress(const struct bmc_context *context, size_t done, size_t total, struct err *err);

/* Passes a sentence to the caller's `log`, if any. */
void api_log(const struct bmc_context *context, enum bmc_log_level level, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* Writes to the log which further members of requests have no effect. */
void api_log_ignored(struct bmc_context *context);

/* Fails for ids outside the vocabulary. */
int api_check_ids(const struct bmc_model *model, const uint32_t *ids, size_t n,
                  struct err *err) MUST_USE;

/* bmc_length() and bmc_truncate() within a call. */
size_t api_length(const struct bmc_context *context, size_t sequence);
size_t api_truncate(struct bmc_context *context, size_t sequence, size_t n);

/* Fails for an index that is not of a sequence of the context. */
int api_check_sequence(const struct bmc_context *context, size_t sequence, struct err *err) MUST_USE;

/* The factors of the model's LoRA adapters for a sequence; NULL: it has none. Setting them empties the
 * sequence if any changes; NULL: 1 each. */
const float *api_lora_factors(const struct bmc_context *context, size_t sequence);
void api_set_lora(struct bmc_context *context, size_t sequence, const float *factors);

/* Sets up an object with one holder, whoever opens it; `free` is called after the last one. `from`: NULL, or what it is
 * opened from, which it holds; it has that one's lock if `shares`. */
void api_object_open(struct api_object *object, struct api_object *from, bool shares,
                     void (*free)(struct api_object *object));

/* Ends a holder of an object, which may be NULL. */
void api_object_drop(struct api_object *object);

/* Begins a call: waits until those of other threads have ended. Fails if `object` is NULL, or if a call on it runs the
 * function that makes this one. `kind`: "context", for the sentence. */
int api_enter(struct api_object *object, const char *kind, struct err *err) MUST_USE;
void api_leave(struct api_object *object);

/* Fails if an argument is NULL. */
int api_given(const void *argument, const char *name, struct err *err) MUST_USE;

/* The object of a public structure, also of a constant one; NULL of NULL. */
#define API_OBJECT(p) ((p) ? (struct api_object *)(uintptr_t) & (p)->object : NULL)

/* The body of a public function: `work`, which returns 0 or -1 with `err`, as a call on the object of *p. */
#define API_CALL(kind, p, work, otherwise, error)                                                      \
    struct err err;                                                                                    \
    int api_rc = api_enter(API_OBJECT(p), kind, &err);                                                 \
    if (api_rc == 0) {                                                                                 \
        api_rc = (work);                                                                               \
        api_leave(API_OBJECT(p));                                                                      \
    }                                                                                                  \
    return api_status(api_rc, &err, otherwise, error)

/* An input of bmc_eval() during the call. */
struct eval_part {
    struct bmc_input input;
    size_t before;  /* tokens of the sequence before the call */
    size_t done;    /* tokens of the input that have been processed */
    size_t outputs; /* outputs that have been computed */
    size_t row, n;  /* in the current pass: its first token's index in the batch, number of tokens */
};

/* bmc_eval() with an internal error. */
int api_eval(struct bmc_context *context, const struct bmc_input *inputs, size_t n,
             struct err *err) MUST_USE;
