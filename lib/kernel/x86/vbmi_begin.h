/* Begin header of AVX512-VNNI with VBMI, included before kernel templates (vec.h): as vnni_begin.h, but
 * points of grids and ternary digits are looked up in registers. */
#pragma once

#include "kernel/x86/vnni_begin.h"

#define load_grid_line(type, qtile, j, g) vbmi_grid_line(type, qtile, j, g)
#include "kernel/x86/grid_vbmi.h"

#include "kernel/template/ternary_lines.h"
#define load_ternary_line(qtile, j, g) vbmi_ternary_line(qtile, j, g)
#include "kernel/x86/ternary_vbmi.h"
