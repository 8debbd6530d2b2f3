/* Macros for rows of option tables, and rows that several programs share. A file that uses them
 * first defines
 *
 *   #define AT(field) offsetof(struct tune_options, field) */
#ifndef BMC_OPT_ROWS_H
#define BMC_OPT_ROWS_H

#include "base/number.h"
#include "base/vm.h"
#include "report/table.h"
#include "opt/opt.h"

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
#define SEED(field, min, help) {OPT_SEED, "seed", "s", "N", help, AT(field), min, 0, NULL, false}
#define REAL(name, arg, field, min, max, help) {OPT_REAL, name, NULL, arg, help, AT(field), min, max, NULL, false}
#define CHOICE(name, arg, field, choices, help) {OPT_CHOICE, name, NULL, arg, help, AT(field), 0, 0, choices, false}
#define NAMES(name, arg, field, choices, help) {OPT_TEXT, name, NULL, arg, help, AT(field), 0, 0, choices, false}

#define MANY 1e15

/* Rows shared by several programs; parameters are the parts that differ. */
#define ROW_CACHE_TYPE(usual) CHOICE("cache-type", "TYPE", kv_type, CHOICES_CACHES, "element type of the KV cache: {} (default " usual ")")
#define ROW_ATTEND CHOICE("attend", "WHICH", rows, "padded|valid", "KV entries that attention reads: padded (with the padding of the policy) or valid (only those of tokens) (default padded)")
#define ROW_ALLOC CHOICE("alloc", "HOW", alloc, VM_ALLOCS, "how cache memory is allocated: pool (blocks share transparent huge pages), malloc, mmap (4 KiB pages) or thp (huge pages for each block) (default pool)")
#define ROW_CACHE_KLD TEXT("cache-kld", NULL, "X", cache_kld, "choose types of K and V for each layer that together cost at most a mean KL divergence of X, from what bmc-prof cache-types measured on the model; a file of it may follow, as 0.01:FILE")
#define ROW_ATTN NAMES("attn", "BACKEND", attn, CHOICES_ATTN, "attention backend: {} (default fused)")
#define ROW_BACKEND CHOICE("backend", "NAME", backend, CHOICES_BACKEND, "what computes forward passes: {}, a GPU or another device with an OpenCL driver (default cpu)")
#define ROW_GPU_LAYERS SIZE("gpu-layers", "ngl", gpu_layers, 0, 1 << 20, "with --backend opencl, how many layers the device computes, the last ones, of which the output layer is one; the CPU computes the others (default: all)")
#define ROW_FALLBACK CHOICE("fallback", "NAME", fallback, "none|cpu", "with --backend opencl, what computes layers that the device cannot: none (they are refused) or cpu (default none)")
#define ROW_ISA NAMES("isa", "SET", isa, CHOICES_ISA, "instruction set: {} (default: BMC_ISA, else the last that is no slower on this CPU than those before it)")
#define ROW_PRECISION NAMES("precision", "P", precision, CHOICES_PRECISION, "arithmetic of matrix products: f32 (weights are dequantised), int8 (with quantised weights: activations are quantised), bf16 or bf16x2 (with bf16 weights: activations are rounded to one bf16, or to the sum of two) (default int8 with quantised weights or cache, bf16 with bf16 weights on bf16 and amx, else f32)")
#define ROW_PROFILE(what) PATH("profile", NULL, "FILE", profile, "tuned profile" what " (default: bmc/profile in $XDG_CONFIG_HOME or ~/.config)")
#define ROW_THREADS SIZE("threads", "t", threads, 1, 4096, "threads (default: all cores available to the process, or its CPU quota if that is less)")
#define ROW_CPU_MASK TEXT("cpu-mask", "C", "HEX", cpu_mask, "cores to run on, as a hexadecimal mask (default: all available to the process)")
#define ROW_CORES CHOICE("cores", "WHICH", cores, "all|performance", "cores to run on: all, or the performance cores of a hybrid processor (default all)")
#define ROW_NUMA FLAG("numa", NULL, numa, "bind threads to NUMA nodes, and copy the model so that each node has the weights that its threads read")
#define ROW_HUGEPAGES FLAG("hugepages", NULL, hugepages, "copy the model to memory in transparent huge pages, instead of mapping its file")
#define ROW_EXPERTS TEXT("experts", NULL, "ram=SIZE", experts, "memory for the weights of experts, as ram=8G: what does not fit is read from the model file when a layer needs it; ,prefetch=off reads nothing in advance (default: all in memory)")
#define ROW_LORA LIST("lora", NULL, "FILE", lora, "add a LoRA adapter to the model: a folder as PEFT writes it, or a GGUF file; a factor may follow, as FILE:0.5; repeatable: adapters add up")
#define ROW_HEADS PATH("retrieval-heads", NULL, "FILE", heads, "with --kv headwise, the list of retrieval heads made by bmc-prof heads; other KV heads attend to sinks and a recent window only")
#define ROW_FORMAT(help) CHOICE("format", "FORMAT", format, TABLE_FORMATS, help)
/* clang-format on */

#endif
