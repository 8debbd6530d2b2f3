/* bmc-convert --info and --verify of model files. */
#ifndef BMC_CONVERT_MODEL_H
#define BMC_CONVERT_MODEL_H

#include "base/table.h"

int convert_model_info(const char *path, enum table_format format, struct err *err) MUST_USE;
int convert_model_verify(const char *path, struct err *err) MUST_USE;

#endif
