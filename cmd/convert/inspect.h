/* bmc-convert --info, --verify and --dry-run. */
#pragma once

#include "cli.h"
#include "model/convert/convert.h"
#include "report/table.h"

int convert_kv_info(const char *path, enum table_format format, struct err *err) MUST_USE;
int convert_model_info(const char *path, enum table_format format, struct err *err) MUST_USE;

/* Check every byte of the file against its hashes. */
int convert_kv_verify(const char *path, struct cli_progress *progress, struct err *err) MUST_USE;
int convert_model_verify(const char *path, struct cli_progress *progress, struct err *err) MUST_USE;

/* Bits per weight, with scales and padding, to three decimals. */
double convert_bits_per_weight(uint64_t bytes, uint64_t weights);

/* What a dry run has planned: rows of its table, a JSON array that the caller owns, and sums. */
struct convert_dry_run {
    json_t *rows;
    uint64_t bytes, weights;
};

/* Adds a tensor; dry_run of struct convert_options. */
int convert_list_planned(void *dry_run, const struct planned_tensor *tensor, struct err *err) MUST_USE;
int convert_write_planned(const struct convert_dry_run *run, enum table_format format,
                          struct err *err) MUST_USE;

/* Prints the properties of a file (`about`), then a table of its tensors or sequences (`rows`). In
 * JSON both are one document, with the table as one of its members. */
int convert_write_info(const json_t *about, const json_t *rows, enum table_format format,
                       struct err *err) MUST_USE;
