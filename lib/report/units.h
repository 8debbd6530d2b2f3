/* Rounded numbers with units, for tables. */
#ifndef BMC_UNITS_H
#define BMC_UNITS_H

#include "base/base.h"

/* A unit of time: its name and its length in ms. */
struct unit {
    const char *name;
    double ms;
};

/* True if a column's name ends in "_bytes": its values are sizes. */
bool unit_is_bytes(const char *column);

/* True if a column's name ends in "_ms" or contains "_ms_": its values are times. */
bool unit_is_time(const char *column);

/* The unit for times of up to largest_ms: the largest in which that is at least 1, but seconds only
 * from 10 s. */
struct unit unit_of_times(double largest_ms);

/* Formats a number of the column named `column`: a time in unit `time` ("35.1 ms"), a size ("1.25
 * GiB"), else with at least 4 digits. */
void unit_format(const char *column, const struct unit *time, double value, char *text, size_t size);

/* The heading of a column whose cells have units: its name without "_ms". */
void unit_heading(const char *column, char *text, size_t size);

#endif
