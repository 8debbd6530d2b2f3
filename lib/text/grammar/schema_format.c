/* Formats of strings, as regular expressions, and of integers, as ranges. */
#include <string.h>

#include "text/grammar/schema_parts.h"

/* Years 0001 to 9999; those of them that are leap years. */
#define YEAR "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
#define LEAP "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                           \
    "(?:" YEAR                                                                                         \
    "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"          \
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define CLOCK         "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
#define TIME(digits)  CLOCK ":[0-5][0-9](?:\\.[0-9]" digits ")?(?:[Zz]|[+-]" CLOCK ")"
#define TIME_TO_WRITE CLOCK ":[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-]" CLOCK ")"

/* Durations (RFC 3339, appendix A), of numbers N. */
#define DURATION(N)                                                                                    \
    "P(?:(?:" N "Y(?:" N "M(?:" N "D)?)?|" N "M(?:" N "D)?|" N                                         \
    "D)(?:" DURATION_TIME(N) ")?|" DURATION_TIME(N) "|" N "W)"
#define DURATION_TIME(N) "T(?:" N "H(?:" N "M(?:" N "S)?)?|" N "M(?:" N "S)?|" N "S)"

#define HEX  "[0-9a-f]"
#define HEX4 "[0-9a-f]{4}"
#define UUID_OF(version, variant)                                                                      \
    HEX4 HEX4 "-" HEX4 "-" version HEX HEX HEX "-" variant HEX HEX HEX "-" HEX4 HEX4 HEX4
#define ANY_HEX4 "[0-9A-Fa-f]{4}"

#define LABEL         "[A-Za-z0-9](?:[A-Za-z0-9-]{0,59}[A-Za-z0-9])?"
#define LONGEST_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define MAIL_LABEL    "[A-Za-z0-9](?:[A-Za-z0-9-]{0,43}[A-Za-z0-9])?"
#define IDN_LABEL     "[a-z0-9](?:-?[a-z0-9]){0,25}"
#define ATEXT         "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define ATOM          ATEXT "{1,20}"

#define MAIL                                                                                           \
    ATOM "(?:\\." ATOM "){0,2}@"                                                                       \
         "(?:" MAIL_LABEL "\\.){1,3}[A-Za-z]{2,12}"

#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 BYTE "(?:\\." BYTE "){3}"
#define H    "[0-9A-Fa-f]{1,4}"
#define IPV6                                                                                           \
    "(?:(?:" H ":){7}" H "|(?:" H ":){1,7}:|(?:" H ":){1,6}:" H "|(?:" H ":){1,5}(?::" H               \
    "){1,2}|(?:" H ":){1,4}(?::" H "){1,3}|(?:" H ":){1,3}(?::" H "){1,4}|(?:" H ":){1,2}(?::" H       \
    "){1,5}|" H ":(?::" H "){1,6}|::(?:" H ":){0,6}" H "|::|(?:" H ":){6}" IPV4 "|::(?:" H             \
    ":){0,5}" IPV4 ")"
#define NETWORK4                                                                                       \
    "(?:" IPV4 "/32|(?:" BYTE "\\.){3}0/24|(?:" BYTE "\\.){2}0\\.0/16|" BYTE                           \
    "\\.0\\.0\\.0/8|0\\.0\\.0\\.0/0)"
#define INTERFACE4 IPV4 "/(?:[12]?[0-9]|3[0-2])"
#define INTERFACE6 IPV6 "/(?:[1-9]?[0-9]|1[01][0-9]|12[0-8])"

/* URIs (RFC 3986) and IRIs (RFC 3987), with the characters `more` beside those of ASCII. */
#define SCHEME        "[A-Za-z][A-Za-z0-9+.-]"
#define REGNAME(more) "(?:[A-Za-z0-9._~!$&'()*+,;=" more "-]|%[0-9A-Fa-f]{2})"
#define PCHAR(more)   "(?:[A-Za-z0-9._~!$&'()*+,;=:@" more "-]|%[0-9A-Fa-f]{2})"
#define TAIL(more)    "(?:\\?(?:[/?]|" PCHAR(more) ")*)?(?:#(?:[/?]|" PCHAR(more) ")*)?"
#define PATH(more)    "(?:/|" PCHAR(more) ")*"
#define AUTHORITY(more)                                                                                \
    "//(?:(?::|" REGNAME(more) ")*@)?(?:\\[" IPV6                                                      \
                               "\\]|" REGNAME(more) "*)(?::[0-9]*)?(?:/" PATH(more) ")?"
#define ROOTED(more) "/(?:" PCHAR(more) PATH(more) ")?"
#define URI(more)                                                                                      \
    SCHEME "*:(?:" AUTHORITY(more) "|" ROOTED(more) "|" PCHAR(more) PATH(more) ")?" TAIL(more)
#define REFERENCE(more)                                                                                \
    "(?:" URI(more) "|(?:" AUTHORITY(more) "|" ROOTED(more) "|(?:@|" REGNAME(more) ")+(?:/" PATH(      \
        more) ")?)?" TAIL(more) ")"
/* Those that are generated name a host, or have no authority. */
#define URI_TO_WRITE(more)                                                                             \
    SCHEME "{1,15}:(?://" LABEL "(?:\\." LABEL                                                         \
           "){0,3}(?::[1-9][0-9]{0,3})?(?:/" PATH(more) ")?|" PCHAR(more) PATH(more) ")" TAIL(more)
#define REFERENCE_TO_WRITE(more)                                                                       \
    "(?:" URI_TO_WRITE(more) "|(?:" ROOTED(more) "|" REGNAME(more) "+(?:/" PATH(more) ")?)" TAIL(      \
        more) ")"
#define UCS "\xc2\xa0-\xed\x9f\xbf\xef\xa4\x80-\xef\xb7\x8f\xef\xb7\xb0-\xef\xbf\xaf"

#define POINTER "(?:/(?:[^~/]|~[01])*)*"
#define NAME    "[A-Za-z_][A-Za-z0-9_]*(?::[1-9][0-9]{0,2}|\\*)?"
#define BASE64(more)                                                                                   \
    "(?:[A-Za-z0-9" more "]{4})*(?:[A-Za-z0-9" more "][AQgw]==|[A-Za-z0-9" more                        \
    "]{2}[AEIMQUYcgkosw048]=)?"
#define PATTERN_ATOM "(?:[A-Za-z0-9 _@/:,-]|\\\\[dDwWsS.*+?()]|\\.|\\[\\^?[A-Za-z0-9_]+\\])[*+?]?"

const struct string_format *schema_string_format(const char *name)
{
    static const struct string_format formats[] = {
        {"date", DATE, NULL, 0},
        {"time", TIME_TO_WRITE, TIME("+"), 0},
        {"date-time", DATE "T" TIME_TO_WRITE, DATE "[Tt]" TIME("+"), 0},
        {"duration", DURATION("[0-9]{1,4}"), DURATION("[0-9]+"), 0},
        {"uuid", UUID_OF(HEX, HEX), ANY_HEX4 ANY_HEX4 "(?:-" ANY_HEX4 "){4}" ANY_HEX4 ANY_HEX4, 0},
        {"uuid1", UUID_OF("1", "[89ab]"), "", 0},
        {"uuid3", UUID_OF("3", "[89ab]"), "", 0},
        {"uuid4", UUID_OF("4", "[89ab]"), "", 0},
        {"uuid5", UUID_OF("5", "[89ab]"), "", 0},
        {"uuid6", UUID_OF("6", "[89ab]"), "", 0},
        {"uuid7", UUID_OF("7", "[89ab]"), "", 0},
        {"uuid8", UUID_OF("8", "[89ab]"), "", 0},
        {"email", MAIL, ATEXT "+(?:\\." ATEXT "+)*@" LONGEST_LABEL "(?:\\." LONGEST_LABEL "){0,8}",
         254},
        {"idn-email", MAIL, "[^@]+@[^@]+", 254},
        {"name-email", MAIL, "", 0},
        {"hostname", LABEL "(?:\\." LABEL "){0,3}", LONGEST_LABEL "(?:\\." LONGEST_LABEL "){0,30}\\.?",
         253},
        {"idn-hostname", IDN_LABEL "(?:\\." IDN_LABEL "){0,3}", NULL, 253},
        {"ipv4", IPV4, NULL, 0},
        {"ipv6", IPV6, NULL, 0},
        {"ipvanyaddress", "(?:" IPV4 "|" IPV6 ")", "", 0},
        {"ipv4network", NETWORK4, "", 0},
        {"ipv6network", IPV6 "/128", "", 0},
        {"ipvanynetwork", "(?:" NETWORK4 "|" IPV6 "/128)", "", 0},
        {"ipv4interface", INTERFACE4, "", 0},
        {"ipv6interface", INTERFACE6, "", 0},
        {"ipvanyinterface", "(?:" INTERFACE4 "|" INTERFACE6 ")", "", 0},
        {"uri", URI_TO_WRITE(""), URI(""), 0},
        {"uri-reference", REFERENCE_TO_WRITE(""), REFERENCE(""), 0},
        {"iri", URI_TO_WRITE(UCS), URI(UCS), 0},
        {"iri-reference", REFERENCE_TO_WRITE(UCS), REFERENCE(UCS), 0},
        {"url", URI_TO_WRITE(""), "", 0},
        {"multi-host-uri", URI_TO_WRITE(""), "", 0},
        {"uri-template", "(?:[A-Za-z0-9._~/:?&=@-]|\\{[+#./;?&]?" NAME "(?:," NAME ")*\\})*", NULL, 0},
        {"json-pointer", POINTER, NULL, 0},
        {"relative-json-pointer", "(?:0|[1-9]{1,8}0?)(?:#|" POINTER ")", NULL, 0},
        {"regex", "(?:" PATTERN_ATOM "|\\((?:" PATTERN_ATOM ")+\\)[*+?]?)+", NULL, 0},
        {"byte", BASE64("+/"), "", 0},
        {"base64", BASE64("+/"), "", 0},
        {"base64url", BASE64("_-"), "", 0},
        {"color", "#[0-9A-Fa-f]{6}", "", 0},
        /* any string */
        {"password", NULL, NULL, 0},
        {"binary", NULL, NULL, 0},
        {"path", NULL, NULL, 0},
        {"file-path", NULL, NULL, 0},
        {"directory-path", NULL, NULL, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

const struct integer_format *schema_integer_format(const char *name)
{
    static const struct integer_format formats[] = {
        {"int8", -128, 127},
        {"int16", -32768, 32767},
        {"int32", INT32_MIN, INT32_MAX},
        {"uint8", 0, 255},
        {"uint16", 0, 65535},
        {"uint32", 0, UINT32_MAX},
        {"int64", INT64_MIN, INT64_MAX},
        {"uint64", 0, INT64_MAX},
    };
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}
