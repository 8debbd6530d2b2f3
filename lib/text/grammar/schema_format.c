/* Formats of strings, as regular expressions. */
#include <string.h>

#include "text/grammar/schema_parts.h"

/* Years 0001 to 9999; those of them that are leap years. */
#define YEAR "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
#define LEAP "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                           \
    "(?:" YEAR                                                                                         \
    "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"          \
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define CLOCK "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
#define TIME  CLOCK ":[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-]" CLOCK ")"
#define HEX4  "[0-9a-f]{4}"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define ATOM  "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
#define BYTE  "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"

const char *schema_format_pattern(const char *format)
{
    static const char *const formats[][2] = {
        {"date", DATE},
        {"time", TIME},
        {"date-time", DATE "T" TIME},
        {"uuid", HEX4 HEX4 "-" HEX4 "-" HEX4 "-" HEX4 "-" HEX4 HEX4 HEX4},
        {"email", ATOM "(?:\\." ATOM "){0,2}@" LABEL "(?:\\." LABEL "){1,3}"},
        {"ipv4", BYTE "(?:\\." BYTE "){3}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (strcmp(formats[i][0], format) == 0)
            return formats[i][1];
    return NULL;
}
