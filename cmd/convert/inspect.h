/* bmc-convert --info and --verify of model files and snapshots. */
#ifndef BMC_INSPECT_H
#define BMC_INSPECT_H

#include "cli.h"
#include "report/table.h"

int convert_kv_info(const char *path, enum table_format format, struct err *err) MUST_USE;
int convert_model_info(const char *path, enum table_format format, struct err *err) MUST_USE;

/* Check every byte of the file against its hashes. */
int convert_kv_verify(const char *path, struct cli_progress *progress, struct err *err) MUST_USE;
int convert_model_verify(const char *path, struct cli_progress *progress, struct err *err) MUST_USE;

/* Prints the properties of a file (`about`), then a table of its tensors or sequences (`rows`). In
 * JSON both are one document, with the table as one of its members. */
int convert_write_info(const json_t *about, const json_t *rows, enum table_format format,
                       struct err *err) MUST_USE;

#endif
