/* Extensions of this 64-bit ARM processor, as the kernel reports them. */
#pragma once

#include <sys/auxv.h>

#include "base/base.h"

/* Bits of AT_HWCAP, and of AT_HWCAP2: part of Linux's interface, but not in every C library's headers. */
enum { ARM_DOTPROD = 1 << 20, ARM_I8MM = 1 << 13, ARM_BF16 = 1 << 14 };

static inline bool arm_has_dotprod(void) { return getauxval(AT_HWCAP) & ARM_DOTPROD; }
static inline bool arm_has_i8mm(void) { return getauxval(AT_HWCAP2) & ARM_I8MM; }
static inline bool arm_has_bf16(void) { return getauxval(AT_HWCAP2) & ARM_BF16; }
