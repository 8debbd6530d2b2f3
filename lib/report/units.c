/* Rounded numbers with units, for tables. */
#include "report/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text_util.h"

/* Returns the position of "_ms" in a column's name, or NULL. */
static const char *find_ms(const char *column)
{
    for (const char *at = column; (at = strstr(at, "_ms")); at++)
        if (at[3] == 0 || at[3] == '_')
            return at;
    return NULL;
}

bool unit_is_bytes(const char *column) { return text_ends(column, "_bytes"); }

bool unit_is_time(const char *column) { return find_ms(column) != NULL; }

struct unit unit_of_times(double largest_ms)
{
    static const struct unit units[] = {{"s", 1e3}, {"ms", 1}, {"us", 1e-3}, {"ns", 1e-6}};
    size_t i = 0;
    while (i + 1 < ARRAY_LEN(units) && fabs(largest_ms) < units[i].ms * (i ? 1 : 10))
        i++;
    return units[i];
}

/* Formats a number with `digits` significant digits, but never rounds the integer part. */
static int format_digits(double value, int digits, char *text, size_t size)
{
    const double x = fabs(value);
    int decimals = digits - 1;
    for (double limit = 10; decimals > 0 && x >= limit; limit *= 10)
        decimals--;
    if (x == 0)
        return snprintf(text, size, "0");
    if (x < 1 || x >= 1e15)
        return snprintf(text, size, "%#.*g", digits, value);
    return snprintf(text, size, "%.*f", decimals, value);
}

void unit_format(const char *column, const struct unit *time, double value, char *text, size_t size)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    const char *name = NULL;
    int digits = 4;
    if (find_ms(column)) {
        name = time->name;
        value /= time->ms;
        digits = 3;
    } else if (unit_is_bytes(column)) {
        size_t i = 0;
        while (i + 1 < ARRAY_LEN(names) && fabs(value) >= 1024)
            value /= 1024, i++;
        name = names[i];
        digits = i ? 3 : 1;
    }
    const int len = format_digits(value, digits, text, size);
    if (name && len > 0 && (size_t)len < size)
        snprintf(text + len, size - (size_t)len, " %s", name);
}

void unit_heading(const char *column, char *text, size_t size)
{
    const char *ms = find_ms(column);
    if (ms)
        snprintf(text, size, "%.*s%s", (int)(ms - column), column, ms + 3);
    else
        snprintf(text, size, "%s", column);
}
