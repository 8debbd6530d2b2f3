/* The JSON parser against jansson's own, with each combination of flags: the same values, and the same
 * texts refused. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool so)
{
    if (!so)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t flags[] = {0, JSON_ALLOW_NUL | JSON_DECODE_ANY,
                                   JSON_REJECT_DUPLICATES | JSON_DECODE_ANY,
                                   JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL};
    if (memchr(data, 0, size)) { /* jansson skips a NUL byte behind a number: JSON has none anywhere */
        json_error_t why;
        must(!json_load((const char *)data, size, flags[0], &why) && why.text[0] && why.line >= 1);
        return 0;
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        json_error_t why, expected;
        json_t *value = json_load((const char *)data, size, flags[i], &why),
               *other = json_loadb((const char *)data, size, flags[i], &expected);
        must(!value == !other);
        must(value ? json_equal(value, other) : why.text[0] && why.line >= 1);
        const bool overflow = !other && json_error_code(&expected) == json_error_numeric_overflow;
        /* jansson reads a number first, and then sees that none is expected there */
        must(!overflow || json_error_code(&why) == json_error_numeric_overflow ||
             strstr(why.text, " is expected, found '"));
        json_decref(value);
        json_decref(other);
    }
    return 0;
}
