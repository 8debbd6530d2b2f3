/* Sampling parameters, and the table of them from which options, members of requests, defaults of models,
 * snapshots and statistics derive. A new one is a row here, its sampler, and a test. */
#pragma once

#include "base/json.h"

/* A logit bias: added to the logit of token `id`. */
struct logit_bias {
    uint32_t id;
    float bias;
};

/* The bias that forbids a token. It is finite, so that no sum of logits becomes NaN. */
#define LOGIT_BIAS_NEVER (-1e30f)
#define LOGIT_BIAS_MOST  1e6 /* largest magnitude of any other bias */

/* Steps of the sampler after biases and penalties: X(NAME, function, name in lists, whether it is part of the
 * default order), in that order. decode/sample/ has a function sampler_FUNCTION() for each. */
#define SAMPLER_LIST(X)                                                                                \
    X(DRY, dry, "dry", true)                                                                           \
    X(TOP_N_SIGMA, top_n_sigma, "top_n_sigma", true)                                                   \
    X(TOP_K, top_k, "top_k", true)                                                                     \
    X(TYPICAL, typical, "typ_p", true)                                                                 \
    X(TOP_P, top_p, "top_p", true)                                                                     \
    X(MIN_P, min_p, "min_p", true)                                                                     \
    X(XTC, xtc, "xtc", true)                                                                           \
    X(TEMPERATURE, temperature, "temperature", true)                                                   \
    X(MIROSTAT, mirostat, "mirostat", false)

#define SAMPLER_STEP(NAME, ...) SAMPLER_##NAME,
enum sampler_step { SAMPLER_LIST(SAMPLER_STEP) SAMPLER_STEPS };
#undef SAMPLER_STEP

/* The steps in another order, or fewer of them. */
struct sampler_order {
    uint8_t step[SAMPLER_STEPS];
    size_t n; /* 0: the default */
};

/* Applied in the order: biases, penalties, then `order`. Zeros are off. */
struct sampler_options {
    double temp;            /* <= 0: greedy: the highest logit, of equals the lowest id */
    size_t top_k;           /* 0: off */
    double top_p;           /* 1: off */
    double min_p;           /* 0: off */
    double top_n_sigma;     /* standard deviations of the logits below the best; 0: off */
    double typical_p;       /* 0 or 1: off */
    double xtc_probability; /* of leaving out likely candidates; 0: off */
    double xtc_threshold;   /* candidates at least as likely are left out, but for the last */
    double dynatemp_range;  /* temperatures from temp - range to temp + range; 0: off */
    double dynatemp_exponent;
    double dry_multiplier; /* of DRY (decode/sample/dry.h); 0: off */
    double dry_base;
    size_t dry_allowed_length;
    size_t dry_last_n;           /* tokens of history that DRY considers; SIZE_MAX: all */
    const uint64_t *dry_breaker; /* bits by token id, of sequence breakers; NULL: none */
    char *const *dry_text;       /* their texts, n_dry_texts; NULL: the default ones */
    size_t n_dry_texts;
    size_t mirostat; /* 2: Mirostat 2, with the default order only temperature before it; 0: off */
    double mirostat_tau, mirostat_eta; /* target surprise in bits, learning rate */
    double mirostat_mu; /* limit on surprise that a sequence begins with, in bits; 0: 2 tau */
    struct sampler_order order;
    double repeat_penalty;         /* 1: off */
    size_t repeat_last_n;          /* tokens of history that the penalties consider */
    double presence_penalty;       /* subtracted once if the token is in the history; 0: off */
    double frequency_penalty;      /* subtracted per occurrence; 0: off */
    const struct logit_bias *bias; /* biases of the same id add up */
    size_t n_biases;
};

/* Kinds of values: a double; a size_t; one of which -1 means all tokens, SIZE_MAX; a version of Mirostat;
 * a list of names of samplers; the state of a sampler, in snapshots only. */
enum sampling_kind {
    SAMPLING_REAL,
    SAMPLING_COUNT,
    SAMPLING_TOKENS,
    SAMPLING_VERSION,
    SAMPLING_ORDER,
    SAMPLING_STATE
};

#define SAMPLING_MANY 1e19 /* no limit */

/* X(kind, field of struct sampler_options, name in requests and files, alias there or NULL, least, most and
 * default value, GGUF's general.sampling key and that of generation_config.json or NULL, option, its
 * argument and its help text). Model files list settings in this order. */
/* clang-format off */
#define SAMPLING_PARAMS(X) \
X(REAL, temp, "temp", "temperature", 0, 100, 0, "temp", "temperature", "temp", "T", \
  "temperature; 0 is greedy decoding (default 0, with --chat the model's or 0.7)") \
X(COUNT, top_k, "top_k", NULL, 0, SAMPLING_MANY, 40, "top_k", "top_k", "top-k", "K", \
  "sample from the K most likely tokens; 0 disables it (default 40)") \
X(REAL, top_p, "top_p", NULL, 0, 1, 0.95, "top_p", "top_p", "top-p", "P", \
  "sample from the most likely tokens whose probabilities reach P in total; 1 disables it (default 0.95)") \
X(REAL, min_p, "min_p", NULL, 0, 1, 0.05, "min_p", "min_p", "min-p", "P", \
  "sample from tokens at least P times as likely as the best; 0 disables it (default 0.05)") \
X(REAL, top_n_sigma, "top_n_sigma", NULL, 0, 1e6, 0, NULL, NULL, "top-n-sigma", "N", \
  "sample from tokens whose logits are at most N standard deviations below the best; 0 disables it (default 0)") \
X(REAL, typical_p, "typical_p", NULL, 0, 1, 1, NULL, "typical_p", "typical-p", "P", \
  "sample from the most typical tokens whose probabilities reach P in total; 1 disables it (default 1)") \
X(REAL, repeat_penalty, "repeat_penalty", "repetition_penalty", 1e-3, 1e3, 1, "penalty_repeat", "repetition_penalty", "repeat-penalty", "X", \
  "penalty on the logits of recent tokens; 1 disables it (default 1)") \
X(TOKENS, repeat_last_n, "repeat_last_n", NULL, -1, SAMPLING_MANY, 64, "penalty_last_n", "repeat_last_n", "repeat-last-n", "N", \
  "recent tokens that penalties apply to; -1 is all (default 64)") \
X(REAL, presence_penalty, "presence_penalty", NULL, -1e3, 1e3, 0, NULL, NULL, "presence-penalty", "X", \
  "subtract X from the logits of recent tokens; 0 disables it (default 0)") \
X(REAL, frequency_penalty, "frequency_penalty", NULL, -1e3, 1e3, 0, NULL, NULL, "frequency-penalty", "X", \
  "subtract X from the logits of recent tokens per occurrence; 0 disables it (default 0)") \
X(REAL, xtc_probability, "xtc_probability", NULL, 0, 1, 0, "xtc_probability", "xtc_probability", "xtc-probability", "P", \
  "probability of leaving out the most likely tokens (XTC); 0 disables it (default 0)") \
X(REAL, xtc_threshold, "xtc_threshold", NULL, 0, 1, 0.1, "xtc_threshold", "xtc_threshold", "xtc-threshold", "P", \
  "with --xtc-probability, tokens at least this likely are left out, but for the last of them; above 0.5 there is none (default 0.1)") \
X(REAL, dynatemp_range, "dynatemp_range", NULL, 0, 100, 0, NULL, NULL, "dynatemp-range", "R", \
  "dynamic temperature: from temp - R to temp + R, by the entropy of the candidates; 0 disables it (default 0)") \
X(REAL, dynatemp_exponent, "dynatemp_exponent", NULL, 0, 1e3, 1, NULL, NULL, "dynatemp-exp", "X", \
  "with --dynatemp-range, exponent of the normalised entropy (default 1)") \
X(REAL, dry_multiplier, "dry_multiplier", NULL, 0, 1e3, 0, NULL, NULL, "dry-multiplier", "X", \
  "DRY: penalise tokens that continue a repetition of n tokens by X * base^(n - allowed length); 0 disables it (default 0)") \
X(REAL, dry_base, "dry_base", NULL, 0, 1e3, 1.75, NULL, NULL, "dry-base", "X", \
  "DRY: base of the penalty (default 1.75)") \
X(COUNT, dry_allowed_length, "dry_allowed_length", NULL, 0, SAMPLING_MANY, 2, NULL, NULL, "dry-allowed-length", "N", \
  "DRY: repetitions shorter than this are not penalised (default 2)") \
X(TOKENS, dry_last_n, "dry_penalty_last_n", NULL, -1, SAMPLING_MANY, -1, NULL, NULL, "dry-penalty-last-n", "N", \
  "DRY: recent tokens in which repetitions are looked for; -1 is all (default -1)") \
X(VERSION, mirostat, "mirostat", NULL, 0, 2, 0, "mirostat", "mirostat", "mirostat", "VERSION", \
  "Mirostat 2: adapt the number of candidates so that the surprise of the text approaches a target, instead of the other samplers but dry and temperature (default 0: off)") \
X(REAL, mirostat_tau, "mirostat_tau", NULL, 0, 1e3, 5, "mirostat_tau", "mirostat_tau", "mirostat-ent", "TAU", \
  "Mirostat: target surprise of a token, in bits (default 5)") \
X(REAL, mirostat_eta, "mirostat_eta", NULL, 0, 1, 0.1, "mirostat_eta", "mirostat_eta", "mirostat-lr", "ETA", \
  "Mirostat: learning rate (default 0.1)") \
X(STATE, mirostat_mu, "mirostat_mu", NULL, -1e9, 1e9, 0, NULL, NULL, NULL, NULL, NULL) \
X(ORDER, order, "samplers", NULL, 0, 0, 0, NULL, NULL, "samplers", "LIST", \
  "order of the samplers, separated by semicolons; those not listed are off (default dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature, with --mirostat 2 dry;temperature;mirostat)")
/* clang-format on */

#define SAMPLING_INDEX(kind, field, ...) SAMPLING_##field,
enum sampling_index { SAMPLING_PARAMS(SAMPLING_INDEX) SAMPLING_COUNT_OF_PARAMS };
#undef SAMPLING_INDEX

struct sampling_param {
    enum sampling_kind kind;
    const char *name, *alias; /* alias: in requests; NULL: none */
    double min, max, initial;
    const char *gguf, *generation; /* keys of model files; NULL: none */
    size_t at;                     /* offset of the field */
};

extern const struct sampling_param sampling_params[SAMPLING_COUNT_OF_PARAMS];

/* Index of the parameter of this name; SAMPLING_COUNT_OF_PARAMS: there is none. */
size_t sampling_find(const char *name);

/* The program's defaults. */
struct sampler_options sampling_defaults(void);

/* Options of which none is given. sampling_override() replaces those in `options` by the given ones; the
 * state of Mirostat begins anew if one of its settings is given. */
struct sampler_options sampling_not_given(void);
bool sampling_is_given(const struct sampler_options *given, size_t param);
void sampling_override(struct sampler_options *options, const struct sampler_options *given);

/* A number as in requests: -1 for all tokens. The parameter must not be a list. sampling_set() returns false,
 * without a change, for values out of range. */
double sampling_get(const struct sampler_options *options, size_t param);
bool sampling_set(struct sampler_options *options, size_t param, double value);

/* The settings as JSON by name (new reference, or NULL): all of the table. sampling_pack() adds sequence
 * breakers of DRY, if they are not the default. */
json_t *sampling_json(const struct sampler_options *options, struct err *err) MUST_USE;
json_t *sampling_pack(const struct sampler_options *options, struct err *err) MUST_USE;

/* Reads what sampling_pack() wrote; settings that it lacks stay as they are. An unknown name is an error.
 * options->dry_text is set if there are breakers, in one block that the caller frees. */
int sampling_read(struct sampler_options *options, const json_t *object, struct err *err) MUST_USE;

/* The steps in the order of their application: options->order, or the default one. */
struct sampler_order sampler_order_of(const struct sampler_options *options);

/* Reads a list of steps, separated by semicolons or commas: each at most once. sampler_order_text() writes
 * one: at most 128 bytes. */
int sampler_order_parse(const char *text, struct sampler_order *order, struct err *err) MUST_USE;
void sampler_order_text(const struct sampler_order *order, char *text, size_t size);
