/* What bmc-convert --info prints. */
#ifndef BMC_CONVERT_PRINT_H
#define BMC_CONVERT_PRINT_H

#include "base/table.h"

/* `about` above or around the rows. */
int convert_write_info(const json_t *about, const json_t *rows, enum table_format format,
                       struct err *err) MUST_USE;

#endif
