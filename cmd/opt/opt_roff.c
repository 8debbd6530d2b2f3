/* Escapes text for man pages. */
#include "opt/opt_roff.h"

void opt_put_roff(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '-')
            fputs("\\-", out);
        else if (*text == '\\')
            fputs("\\e", out);
        else
            fputc(*text, out);
    }
}
