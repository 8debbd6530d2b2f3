/* How tables for people spell numbers: few digits, and times and sizes with their unit. */
#ifndef BMC_UNITS_H
#define BMC_UNITS_H

#include "base/base.h"

/* The unit of the times of a table. */
struct unit {
    const char *name;
    double ms; /* of one of it */
};

/* Its name ends in _bytes. */
bool unit_is_bytes(const char *column);

/* "_ms" is at its end, or "_ms_" in it. */
bool unit_is_time(const char *column);

/* That in which the largest has a digit before the point; seconds from 10 on. */
struct unit unit_of_times(double largest_ms);

/* The number of a column of this name: "35.1 ms" for a time, "1.25 GiB" where it ends in _bytes, else with at
 * least 4 digits. */
void unit_spell(const char *column, const struct unit *time, double value, char *text, size_t size);

/* The heading over such numbers: the name without its _ms. */
void unit_heading(const char *column, char *text, size_t size);

#endif
