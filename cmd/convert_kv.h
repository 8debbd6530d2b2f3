/* The parts of bmc-convert that look at files. */
#ifndef BMC_CONVERT_KV_H
#define BMC_CONVERT_KV_H

#include "base/table.h"

/* Prints what --info has to say: `about` above or around the rows. */
int convert_write_info(const json_t *about, const json_t *rows, enum table_format format,
                       struct err *err) MUST_USE;

/* --info and --verify of a snapshot. */
int convert_kv_info(const char *path, enum table_format format, struct err *err) MUST_USE;
int convert_kv_verify(const char *path, struct err *err) MUST_USE;

#endif
