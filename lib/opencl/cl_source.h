/* The kernels' source, which is a part of the library. */
#pragma once

#include "base/base.h"

/* The text of a program, named by the first of its files of kernels, behind what all programs share; the caller frees it.
 * NULL: out of memory. */
char *cl_source(const char *program);
