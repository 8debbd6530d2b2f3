/* Parsing of numbers. */
#include "base/number.h"

#include <ctype.h>
#include <locale.h>
#include <sys/random.h>

bool parse_size(const char *text, size_t *value)
{
    if (!isdigit((unsigned char)*text))
        return false;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    *value = number;
    return errno == 0 && *end == 0;
}

bool parse_int64(const char *text, int64_t *value)
{
    if (!isdigit((unsigned char)text[*text == '-']))
        return false;
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && *end == 0;
}

/* strtod() with a decimal point, whatever locale a host program has set. */
static double to_double(const char *text, char **end)
{
    const locale_t c = newlocale(LC_ALL_MASK, "C", NULL);
    const double value = c ? strtod_l(text, end, c) : strtod(text, end);
    if (c)
        freelocale(c);
    return value;
}

bool parse_double(const char *text, double *value)
{
    if (!*text || isspace((unsigned char)*text))
        return false;
    char *end;
    errno = 0;
    *value = to_double(text, &end);
    return (errno == 0 || errno == ERANGE) && *end == 0 && isfinite(*value);
}

bool parse_bytes(const char *text, size_t *bytes)
{
    static const char units[] = "KMGTkmgt";
    char number[32];
    const size_t len = strspn(text, "0123456789.");
    const char *unit = text[len] ? strchr(units, text[len]) : NULL;
    double value;
    if (len >= sizeof number || (text[len] && (!unit || text[len + 1])))
        return false;
    memcpy(number, text, len);
    number[len] = 0;
    if (!parse_double(number, &value))
        return false;
    value = ldexp(value, unit ? 10 * (int)((unit - units) % 4 + 1) : 0);
    if (value < 1 || value > 0x1p60)
        return false;
    *bytes = (size_t)value;
    return true;
}

bool parse_count(const char *text, size_t *value)
{
    const size_t digits = strspn(text, "0123456789");
    return parse_size(text, value) || (text[digits] && !text[digits + 1] && parse_bytes(text, value));
}

/* Replaces the decimal point of the locale, which may have several bytes. */
static void set_decimal_point(char *text)
{
    char *at = text + strspn(text, "+-0123456789efinan");
    if (!*at)
        return;
    *at++ = '.';
    const size_t rest = strcspn(at, "0123456789");
    memmove(at, at + rest, strlen(at + rest) + 1);
}

void number_text(double number, char text[NUMBER_TEXT_SIZE])
{
    enum { LEAST = 15, ALWAYS_ENOUGH = 17 };
    for (int digits = LEAST; digits <= ALWAYS_ENOUGH; digits++) {
        snprintf(text, NUMBER_TEXT_SIZE, "%.*g", digits, number);
        set_decimal_point(text);
        if (to_double(text, NULL) == number)
            return;
    }
}

/* ---- seeds of random numbers ---- */

bool seed_parse(const char *text, struct seed *seed)
{
    size_t value = 0;
    const bool draw = strcmp(text, "-1") == 0;
    _Static_assert(sizeof(size_t) == sizeof(uint64_t), "sizes have 64 bits");
    if (!draw && !parse_size(text, &value))
        return false;
    *seed = (struct seed){value, true, draw};
    return true;
}

int seed_draw(uint64_t *value, struct err *err)
{
    uint32_t drawn;
    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn)
        return err_errno(err, "cannot draw a random seed");
    *value = drawn;
    return 0;
}
