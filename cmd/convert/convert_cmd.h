/* bmc-convert: what its files share. */
#pragma once

#include "cli.h"
#include "model/convert/convert.h"
#include "prof/type_search.h"
#include "report/table.h"

/* ---- a source that is run as a model ---- */

/* A source opened as a model with its own types, by way of a file without a name unless it is one. */
struct opened_source {
    struct model *model;
    int fd; /* of that file; -1: none */
};

/* Opens a source of convert_folder(); a folder or GGUF file is converted, as the name, tokenizer and chat options say,
 * to a file beside `out` first. To be closed after an error, too. */
int opened_source_open(struct opened_source *opened, const char *source, const char *out,
                       const struct convert_options *options, struct err *err) MUST_USE;
void opened_source_close(struct opened_source *opened);

/* ---- --calibrate: an importance matrix without a text ---- */

/* Collects the importance matrix of a source of convert_folder() over tokens drawn at random from its vocabulary, in one
 * sequence at f32 precision: what differs most between inputs of a matrix, their scale, depends little on the text. The
 * draw is the same in every run. `weights` is to be closed by imatrix_weights_close(). Fails for draft heads, which
 * run on their target alone. */
int convert_calibrate(struct imatrix_weights *weights, const char *source, const char *out,
                      const struct convert_options *options, int threads, struct err *err) MUST_USE;

/* The number of weights of a source, its draft head included; 0: it cannot be converted. */
size_t convert_count_weights(const char *source, const struct convert_options *options) MUST_USE;

/* ---- --target-bytes, --target-bpw and --target-kld: types by measured divergence ---- */

struct target {
    enum type_goal goal;
    double value;
    const char *text; /* path */
    int threads;
};

/* Chooses the types for `out`, a .bmc or GGUF file, of a source that `plain` converts with its own types. The caller
 * releases *chosen, also after an error. */
int convert_choose_types(struct chosen_types *chosen, const struct target *target, const char *source,
                         const char *out, const struct convert_options *plain,
                         struct err *err) MUST_USE;

/* ---- what is printed ---- */

/* --info: properties of a file, and its tensors or sequences. --verify checks every byte of a file against its hashes. */
int convert_kv_info(const char *path, enum table_format format, struct err *err) MUST_USE;
int convert_model_info(const char *path, enum table_format format, struct err *err) MUST_USE;
int convert_gguf_info(const char *path, enum table_format format, struct err *err) MUST_USE;
int convert_kv_verify(const char *path, struct cli_progress *progress, struct err *err) MUST_USE;
int convert_model_verify(const char *path, struct cli_progress *progress, struct err *err) MUST_USE;

/* --cache: the folder of models that were converted on first use, and their table; or removes them, which is said on
 * standard error unless `quiet`. */
int convert_list_cache(enum table_format format, struct err *err) MUST_USE;
int convert_clear_cache(const char *program, bool quiet, struct err *err) MUST_USE;

/* Bits per weight, with scales and padding, to three decimals. */
double convert_bits_per_weight(uint64_t bytes, uint64_t weights);

/* The tensors that a conversion writes, or would write. */
struct planned_model {
    json_t *rows; /* of the table of a dry run, a JSON array that the caller owns; NULL: none */
    uint64_t bytes, weights;
    size_t n[DTYPE_COUNT]; /* tensors of each type */
    size_t file_bytes;
};

/* Adds a tensor; planned() of struct convert_options. */
int convert_add_planned(void *planned_model, const struct planned_tensor *tensor,
                        struct err *err) MUST_USE;
int convert_write_planned(const struct planned_model *planned, enum table_format format,
                          struct err *err) MUST_USE;

/* Says on standard error what was written: "m.bmc: 98.4 MiB, 5.002 bits per weight: 211 tensors q4_1, 61 f32". */
void convert_say_written(const struct planned_model *planned, const char *program, const char *out);

/* Prints the properties of a file (`about`), then a table of its tensors or sequences (`rows`). In
 * JSON both are one document, with the table as one of its members. */
int convert_write_info(const json_t *about, const json_t *rows, enum table_format format,
                       struct err *err) MUST_USE;
