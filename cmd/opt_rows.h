/* Rows of option tables: their kinds, and those that several programs have. The file that has a table says before where a
 * field lies, as in
 *
 *   #define AT(field) offsetof(struct tune_options, field)
 */
#ifndef BMC_OPT_ROWS_H
#define BMC_OPT_ROWS_H

#include "base/pages.h"
#include "base/table.h"
#include "opt.h"

/* clang-format off */
#define HEADING(text) {OPT_HEADING, text, NULL, NULL, NULL, 0, 0, 0, NULL, false}
#define FLAG(name, letters, field, help) {OPT_FLAG, name, letters, NULL, help, AT(field), 0, 0, NULL, false}
#define TEXT(name, letters, arg, field, help) {OPT_TEXT, name, letters, arg, help, AT(field), 0, 0, NULL, false}
#define LIST(name, letters, arg, field, help) {OPT_LIST, name, letters, arg, help, AT(field), 0, 0, NULL, false}
#define PATH(name, letters, arg, field, help) {OPT_TEXT, name, letters, arg, help, AT(field), 0, 0, NULL, true}
#define OUTPUT(name, letters, role, field, help) {OPT_TEXT, name, letters, "FILE", help, AT(field), 0, 0, NULL, role}
#define SIZE(name, letters, field, min, max, help) {OPT_SIZE, name, letters, "N", help, AT(field), min, max, NULL, false}
#define TOKENS(name, letters, field, min, max, help) {OPT_TOKENS, name, letters, "N", help, AT(field), min, max, NULL, false}
#define TOKENS_INT(name, letters, field, min, max, help) {OPT_TOKENS_INT, name, letters, "N", help, AT(field), min, max, NULL, false}
#define INT(name, letters, field, min, max, help) {OPT_INT, name, letters, "N", help, AT(field), min, max, NULL, false}
#define REAL(name, arg, field, min, max, help) {OPT_REAL, name, NULL, arg, help, AT(field), min, max, NULL, false}
#define CHOICE(name, arg, field, choices, help) {OPT_CHOICE, name, NULL, arg, help, AT(field), 0, 0, choices, false}
#define NAMES(name, arg, field, choices, help) {OPT_TEXT, name, NULL, arg, help, AT(field), 0, 0, choices, false}

#define MANY 1e15

/* What differs from program to program is given. */
#define ROW_KV_TYPE(usual) CHOICE("kv-type", "TYPE", kv_type, CHOICES_CACHES, "type of the cached rows: {} (default " usual ")")
#define ROW_ROWS CHOICE("rows", "WHICH", rows, "policy|valid", "rows that attention multiplies: policy (those it asks for) or valid (only those that hold tokens) (default policy)")
#define ROW_ALLOC CHOICE("alloc", "HOW", alloc, PAGES_ALLOCS, "how the cache's memory is had: malloc, mmap (4 KiB pages) or thp (huge pages) (default malloc)")
#define ROW_ATTN NAMES("attn", "BACKEND", attn, CHOICES_ATTN, "attention backend: {} (default fused)")
#define ROW_ISA NAMES("isa", "SET", isa, CHOICES_ISA, "instruction set: {} (default: BMC_ISA, else the last of these that is not slower here than one before it)")
#define ROW_PRECISION NAMES("precision", "P", precision, CHOICES_PRECISION, "how activations meet weights of few bits: int8 (activations are rounded to int8) or f32 (weights are widened); and bf16 weights: f32 (weights are widened), bf16 (activations are rounded once), bf16x2 (each is the sum of two bf16 terms) (default int8 where weights or the cache are of few bits, else bf16x2 on bf16 and amx, else f32)")
#define ROW_PROFILE(what) PATH("profile", NULL, "FILE", profile, "the tuned profile" what " (default: bmc/profile in $XDG_CONFIG_HOME, else in ~/.config)")
#define ROW_THREADS SIZE("threads", "t", threads, 1, 4096, "threads (default: all cores that the process may use)")
#define ROW_FORMAT(help) CHOICE("format", "FORMAT", format, TABLE_FORMATS, help)
/* clang-format on */

#endif
