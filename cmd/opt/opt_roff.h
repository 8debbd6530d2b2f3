/* Escapes text for man pages. */
#ifndef BMC_OPT_ROFF_H
#define BMC_OPT_ROFF_H

#include <stdio.h>

/* Prints text with roff characters escaped and with ASCII dashes, which readers can copy. */
void opt_put_roff(const char *text, FILE *out);

#endif
