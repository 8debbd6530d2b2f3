/* bmc-convert --info and --verify of snapshots. */
#ifndef BMC_CONVERT_KV_H
#define BMC_CONVERT_KV_H

#include "base/table.h"

int convert_kv_info(const char *path, enum table_format format, struct err *err) MUST_USE;
int convert_kv_verify(const char *path, struct err *err) MUST_USE;

#endif
