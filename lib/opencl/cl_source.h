/* The kernels' source, which is a part of the library. */
#pragma once

#include "base/base.h"

/* The text of a file of kernels behind those that all share; the caller frees it. NULL: out of memory. */
char *cl_source(const char *file);
