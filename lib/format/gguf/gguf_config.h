/* GGUF metadata in the form of config.json and generation_config.json, and their checks. */
#pragma once

#include "format/gguf/gguf_arch.h"

/* Fails for files of other kinds: adapters, importance matrices, projectors, vocabularies. */
int gguf_check_kind(const struct gguf_set *set, const char *path, struct err *err) MUST_USE;

/* Fails if a required key is missing, or a key requests an unsupported feature. */
int gguf_check_values(const struct gguf_arch *arch, const struct gguf_set *set, const char *path,
                      struct err *err) MUST_USE;

/* Makes the equivalent of config.json; `path` is used in errors. The caller must json_decref()
 * *config, even after an error. */
int gguf_config(json_t **config, const struct gguf_arch *arch, const struct gguf_set *set,
                const char *path, struct err *err) MUST_USE;

/* Makes the equivalent of generation_config.json, which has the EOS ids and sampling defaults. */
int gguf_generation(json_t **generation, const struct gguf_set *set, struct err *err) MUST_USE;

/* ---- writing ---- */

/* The nth key with members of config.json that it is read as, comma-separated; *needed: the architecture must have it.
 * False: there are no more. */
bool gguf_config_key(const struct gguf_arch *arch, size_t nth, const char **key, const char **members,
                     bool *needed);

/* The divisor of the frequency of a rotary pair with Llama 3's scaling, as rope_freqs.weight has them. */
double gguf_llama3_divisor(double theta, double factor, double high, size_t original, size_t pair,
                           size_t pairs);
