/* How memory is best asked for codes that few rows read (set_int8_few.h). */
#ifndef BMC_ASK_FAR_H
#define BMC_ASK_FAR_H

#include "base/base.h"

/* AMD's processors have few places for what is on its way to the first-level cache: single tiles read several streams, into the
 * second-level cache, and several tiles pass over long pieces. kernels_setup() finds it out; tests set it. No result depends on it. */
extern bool ask_far;

void ask_far_setup(void);

#endif
