/* The kernel set ref: portable C for any CPU, clear rather than fast. Tests compare the other sets
 * with it. It is compiled twice for x86, with and without the FMA instruction. */
#pragma once

#include "kernel/ref/ref_begin.h"
#include "kernel/template/attend.h"
#include "kernel/template/panel.h"
#include "kernel/template/recur.h"
#include "kernel/template/row_ops.h"

static bool ref_usable(void) { return true; }

/* The set, with attention over quantised entries, which is a translation unit of its own. */
#define REF_SET(ATTEND_QUANT)                                                                          \
    {                                                                                                  \
        .isa = "ref", .summary = "portable C", .usable = ref_usable, SET_SLOTS, RECUR_SLOTS,           \
        INT8_SLOTS, .attend_quant = ATTEND_QUANT,                                                      \
    }
