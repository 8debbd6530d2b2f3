/* Values of GGUF metadata as JSON. */
#include "format/gguf/gguf_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

double gguf_shortest(double number)
{
    char text[40];
    double found = number;
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        found = strtod(text, NULL);
        if ((float)found == (float)number)
            break;
    }
    return found;
}

json_t *gguf_json(const struct gguf_element *e)
{
    switch (e->of->type) {
    case GGUF_STRING: return json_text(e->text, e->len);
    case GGUF_BOOL: return json_boolean(e->integer);
    case GGUF_F32: return isfinite(e->real) ? json_real(gguf_shortest(e->real)) : json_null();
    case GGUF_F64: return isfinite(e->real) ? json_real(e->real) : json_null();
    default: return json_integer(e->integer);
    }
}
