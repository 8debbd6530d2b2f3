/* The filter of system calls for programs in a sandbox: what a program that reads its input, computes and writes its output
 * does not need, and could reach other processes, the network or settings of the system with. */
#pragma once

#include <linux/filter.h>

#include "base/err.h"

enum { SANDBOX_FILTER_MAX = 512 };

struct sandbox_filter {
    struct sock_filter code[SANDBOX_FILTER_MAX];
    unsigned short n; /* 0: not known for this architecture */
};

void sandbox_filter_make(struct sandbox_filter *filter);
