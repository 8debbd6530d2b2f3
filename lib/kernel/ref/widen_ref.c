/* Portable C: widening of KV entries. */
#include "kernel/ref/ref_begin.h"
#include "kernel/template/widen.h"

WIDEN_FUNCTION(widen_ref)
