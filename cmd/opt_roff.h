/* Text for man pages. */
#ifndef BMC_OPT_ROFF_H
#define BMC_OPT_ROFF_H

#include <stdio.h>

/* Nothing in the text is a command of roff; its dashes are those that can be copied. */
void opt_put_roff(const char *text, FILE *out);

#endif
