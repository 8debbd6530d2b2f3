/* Modules of bmc-prof: statistics, tables, memory by pages, counters, synthetic models. */
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/vm.h"
#include "report/fields.h"
#include "report/stat.h"
#include "report/table.h"
#include "tests/unit/check.h"
#include "model/config/config_keys.h"
#include "model/forward.h"
#include "model/synth/synth.h"
#include "model/weight_kinds.h"
#include "prof/counters.h"
#include "prof/knapsack.h"
#include "prof/predict.h"
#include "prof/report.h"
#include "prof/roofline.h"

/* ---- statistics ---- */

static void test_stat(void)
{
    double one[] = {3}, quant[] = {4, 1, 3, 2}, many[] = {2, 4, 4, 4, 5, 5, 7, 9};
    check(stat_mean(one, 1) == 3 && stat_sd(one, 1) == 0 && stat_quantile(one, 1, 0.99) == 3,
          "a list of one");
    check(stat_mean(quant, 4) == 2.5, "mean of 4, 1, 3, 2: %g", stat_mean(quant, 4));
    check(near(stat_sd(quant, 4), sqrt(5.0 / 3), 1e-15), "deviation of 4, 1, 3, 2: %g",
          stat_sd(quant, 4));
    check(near(stat_sd(many, 8), sqrt(32.0 / 7), 1e-15), "deviation of eight: %g", stat_sd(many, 8));
    check(stat_quantile(quant, 4, 0.5) == 2.5, "median of four: %g", stat_quantile(quant, 4, 0.5));
    check(quant[0] == 1 && quant[3] == 4, "the list was not sorted");
    check(stat_quantile(quant, 4, 0) == 1 && stat_quantile(quant, 4, 1) == 4, "ends of a list");
    check(near(stat_quantile(quant, 4, 0.95), 3.85, 1e-15), "0.95 of 1 to 4: %g",
          stat_quantile(quant, 4, 0.95));
    check(stat_quantile(many, 8, 0.5) == 4.5, "median of eight: %g", stat_quantile(many, 8, 0.5));
    check(stat_quantile(many, 7, 0.5) == 4, "median of seven: %g", stat_quantile(many, 7, 0.5));
}

/* ---- tables ---- */

static json_t *rows_of(const char *text)
{
    json_error_t error;
    json_t *rows = json_loads(text, 0, &error);
    check(rows != NULL, "the test's own JSON: %s", error.text);
    return rows;
}

static void expect(const char *what, const char *rows_text, const char *about_text,
                   enum table_format format, const char *want)
{
    json_t *rows = rows_of(rows_text), *about = about_text ? rows_of(about_text) : NULL;
    struct buf out = {0};
    struct err err;
    check(table_write(rows, about, format, &out, &err) == 0 && out.data && strcmp(out.data, want) == 0,
          "%s:\n%s\nin place of\n%s", what, out.data ? out.data : "(nothing)", want);
    buf_release(&out);
    json_decref(rows);
    json_decref(about);
}

static void test_table(void)
{
    static const char rows[] = "[{\"policy\": \"bmc\", \"n\": 5, \"x\": 0.5, \"none\": null},"
                               " {\"none\": 2, \"policy\": \"upfront\", \"n\": 123, \"x\": 1234567.5}]";
    expect("text", rows, NULL, TABLE_TEXT,
           "policy     n            x  none\n"
           "bmc        5          0.5  -\n"
           "upfront  123  1.23457e+06     2\n");
    expect("Markdown", rows, NULL, TABLE_MD,
           "| policy  |   n |           x | none |\n"
           "| --- | --- | --- | --- |\n"
           "| bmc     |   5 |         0.5 | -    |\n"
           "| upfront | 123 | 1.23457e+06 |    2 |\n");
    expect("CSV", rows, "{\"left\": \"out\"}", TABLE_CSV,
           "policy,n,x,none\nbmc,5,0.5,\nupfront,123,1.23457e+06,2\n");
    expect("JSON lines", rows, NULL, TABLE_JSONL,
           "{\"policy\":\"bmc\",\"n\":5,\"x\":0.5,\"none\":null}\n"
           "{\"none\":2,\"policy\":\"upfront\",\"n\":123,\"x\":1234567.5}\n");
    expect("JSON", "[{\"a\": 1.5}]", NULL, TABLE_JSON,
           "{\n \"rows\": [\n  {\n   \"a\": 1.5\n  }\n ]\n}\n");
    expect("JSON after other members", "[]", "{\"k\": true}", TABLE_JSON,
           "{\n \"k\": true,\n \"rows\": []\n}\n");
    expect("quoted CSV",
           "[{\"a,b\": \"say \\\"x\\\"\", \"plain\": \"two words\", \"lines\": \"1\\n2\", \"cr\": "
           "\"\\r\"}]",
           NULL, TABLE_CSV, "\"a,b\",plain,lines,cr\n\"say \"\"x\"\"\",two words,\"1\n2\",?\n");
    expect("a member that a row lacks", "[{\"a\": 1, \"b\": 2}, {\"a\": 3}]", NULL, TABLE_CSV,
           "a,b\n1,2\n3,\n");
    expect("whole and true values", "[{\"a\": 123456789012, \"b\": false}]", NULL, TABLE_CSV,
           "a,b\n123456789012,false\n");
    expect("characters, not bytes, make the width",
           "[{\"a\": \"\xc3\xa4\xc3\xb6\xc3\xbc\", \"n\": 1}, {\"a\": \"x\", \"n\": 2}]", NULL,
           TABLE_TEXT, "a    n\n\xc3\xa4\xc3\xb6\xc3\xbc  1\nx    2\n");
}

/* ---- rows from records ---- */

struct round {
    const char *name;
    double ms, rate;
    size_t bytes, none;
    int64_t faults;
    bool on;
};

#define OF(kind, name, member, flags, stat)                                                            \
    {                                                                                                  \
        name, FIELD_##kind, offsetof(struct round, member), flags, FIELD_##stat                        \
    }

static const struct row_field round_fields[] = {
    OF(TEXT, "name", name, FIELD_TEST, LAST),
    OF(REAL, "ms", ms, FIELD_SAMPLES, MEDIAN),
    OF(REAL, "ms_min", ms, 0, MIN),
    OF(REAL, "ms_max", ms, 0, MAX),
    OF(REAL, "ms_mean", ms, 0, MEAN),
    OF(REAL, "ms_sd", ms, 0, SD),
    OF(REAL, "last", ms, 0, LAST),
    OF(REAL, "rate", rate, 0, MEDIAN),
    OF(SIZE, "bytes", bytes, FIELD_TEST, MAX),
    OF(SIZE, "none", none, 0, LAST),
    OF(COUNT, "faults", faults, 0, LAST),
    OF(BOOL, "on", on, 0, LAST),
    OF(NAME, "given elsewhere", on, FIELD_TEST, LAST),
    {.name = NULL},
};

/* Statistics over rounds; NaN, SIZE_MAX and negative counts are null. */
static void test_fields(void)
{
    static const struct round rounds[] = {{"a\xff", 4, NAN, 7, SIZE_MAX, -1, false},
                                          {"a\xff", 1, NAN, 9, SIZE_MAX, -1, false},
                                          {"a\xff", 2.5, NAN, 8, SIZE_MAX, -1, true}};
    static const char want[] =
        "{\"name\":\"a\xef\xbf\xbd\",\"ms\":2.5,\"ms_min\":1.0,\"ms_max\":4.0,"
        "\"ms_mean\":2.5,\"ms_sd\":1.5,\"last\":2.5,\"rate\":null,\"bytes\":9,"
        "\"none\":null,\"faults\":null,\"on\":true,\"samples\":{\"ms\":[4.0,1.0,2.5]}}\n";
    struct buf out = {0};
    struct err err;
    json_t *row = json_object(), *part = json_object();
    check(fields_put(row, round_fields, FIELD_ALL, rounds, 3, sizeof *rounds, &err) == 0 &&
              fields_put_samples(row, round_fields, rounds, 3, sizeof *rounds, &err) == 0 &&
              json_write_line(row, &out, &err) == 0 && strcmp(out.data, want) == 0,
          "a row of three rounds:\n%s%s", out.data, want);
    buf_clear(&out);
    check(fields_put(part, round_fields, FIELD_TEST, rounds, 1, sizeof *rounds, &err) == 0 &&
              json_write_line(part, &out, &err) == 0 &&
              strcmp(out.data, "{\"name\":\"a\xef\xbf\xbd\",\"bytes\":7}\n") == 0,
          "fields with a flag:\n%s", out.data);
    check(field_find(round_fields, "ms_max,x", 6) == &round_fields[3] &&
              !field_find(round_fields, "ms_ma", 5),
          "a field by its whole name");
    json_decref(row);
    json_decref(part);
    buf_release(&out);
}

/* ---- memory ---- */

static const enum vm_alloc ways[] = {VM_POOL, VM_MALLOC, VM_MMAP, VM_THP};

/* True if every byte keeps what is written to it. */
static bool usable(char *block, size_t bytes)
{
    bool ok = true;
    for (size_t i = 0; i < bytes; i++)
        block[i] = (char)(i * 7 + 1);
    for (size_t i = 0; i < bytes; i++)
        ok = ok && block[i] == (char)(i * 7 + 1);
    return ok;
}

/* Number of pages of a mapping that are in memory. */
static size_t pages_present(void *from, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n = div_up(bytes, page);
    unsigned char *in_memory = calloc(n, 1);
    size_t present = 0;
    if (mincore(from, bytes, in_memory) == 0)
        for (size_t i = 0; i < n; i++)
            present += in_memory[i] & 1;
    free(in_memory);
    return present;
}

static void spells(const char *column, double largest_ms, double value, const char *want)
{
    const struct unit time = unit_of_times(largest_ms);
    char text[64];
    unit_format(column, &time, value, text, sizeof text);
    check(strcmp(text, want) == 0, "%s %g -> %s, %s wanted", column, value, text, want);
}

static void test_units(void)
{
    spells("step_ms", 35.12, 35.12, "35.1 ms");
    spells("step_ms", 9999, 9999, "9999 ms");
    spells("step_ms", 10000, 12345, "12.3 s");
    spells("total_ms_min", 0.9, 0.0123, "12.3 us");
    spells("bmc_ms", 0.0009, 0.0009, "900 ns");
    spells("bmc_ms", 35, 0.0123, "0.0123 ms");
    spells("bmc_ms", 35, 0, "0 ms");
    spells("kv_bytes", 1, 0, "0 B");
    spells("kv_bytes", 1, 1023, "1023 B");
    spells("kv_bytes", 1, 1536, "1.50 KiB");
    spells("kv_bytes", 1, 1342177280, "1.25 GiB");
    spells("tok_s", 1, 12345.67, "12346");
    spells("tok_s", 1, 123.456, "123.5");
    spells("ratio", 1, 0.98765, "0.9877");
    spells("a_msg", 1, 5, "5.000");
    struct buf out = {0};
    struct err err = {0};
    json_t *rows = rows_of("[{\"p\": \"a\", \"x_ms\": 12.5, \"n\": 7, \"y_bytes\": 2048},"
                           " {\"p\": \"b\", \"x_ms\": 0.5, \"n\": 1000000, \"y_bytes\": null}]");
    check(table_write_human(rows, TABLE_TEXT, &out, &err) == 0 &&
              strcmp(out.data, "p         x        n   y_bytes\n"
                               "a   12.5 ms        7  2.00 KiB\n"
                               "b  0.500 ms  1000000  -\n") == 0,
          "a table for people:\n%s", out.data);
    json_decref(rows);
    buf_release(&out);
}

static void test_pages(enum vm_alloc how)
{
    static const size_t sizes[] = {1, 100, 4096, 4097, (2 << 20) - 1, (2 << 20) + 5, 5 << 20};
    const size_t align = how == VM_THP ? 2 << 20 : how == VM_MMAP ? 4096 : 64;
    const char *name = vm_alloc_name(how);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        char *block = vm_get(how, sizes[i]);
        if (!check(block && (uintptr_t)block % align == 0, "%s: %zu bytes at %p", name, sizes[i],
                   (void *)block))
            continue;
        if (how == VM_MMAP || how == VM_THP) {
            bool zero = true;
            for (size_t k = 0; k < sizes[i]; k++)
                zero = zero && block[k] == 0;
            check(zero, "%s: fresh pages are not zero", name);
        }
        check(usable(block, sizes[i]), "%s: %zu bytes do not keep what is written", name, sizes[i]);
        vm_free(how, block, sizes[i]);
    }
    static const size_t absurd[] = {SIZE_MAX / 2, (size_t)1 << 56};
    for (size_t i = 0; i < ARRAY_LEN(absurd); i++) {
        check(!vm_get(how, absurd[i]), "%s: %zu bytes were had", name, absurd[i]);
        check(!vm_reserve(how, absurd[i]), "%s: %zu bytes were reserved", name, absurd[i]);
    }
    vm_free(how, NULL, 4096);
    vm_release(NULL, 4096);
}

/* A reservation uses memory only for pages that contain part of a committed range. */
static void test_commit(enum vm_alloc how)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = 64 * page;
    const char *name = vm_alloc_name(how);
    char *block = vm_reserve(how, bytes);
    if (!check(block != NULL, "%s: no reservation", name))
        return;
    check(pages_present(block, bytes) == 0, "%s: a fresh reservation takes memory", name);
    check(vm_commit(block + page + 100, 1), "%s: one byte", name);
    check(pages_present(block + page, page) == 1, "%s: the byte's page is not there", name);
    if (how != VM_THP) /* the kernel may commit a whole huge page */
        check(pages_present(block, bytes) == 1, "%s: %zu pages for a byte", name,
              pages_present(block, bytes));
    check(vm_commit(block + 4 * page - 1, page + 2), "%s: across two borders", name);
    check(pages_present(block + 3 * page, 3 * page) == 3, "%s: not all pages of an unaligned range",
          name);
    block[page + 100] = 42;
    check(vm_commit(block, bytes) && pages_present(block, bytes) == 64, "%s: the whole", name);
    check(block[page + 100] == 42, "%s: a second commit changed what was there", name);
    check(usable(block, bytes), "%s: committed pages do not keep what is written", name);
    vm_release(block, bytes);
}

/* Reserves much address space and commits little of it. */
static void test_large_reservation(void)
{
    const size_t bytes = (size_t)1 << 36;
    char *block = vm_reserve(VM_MMAP, bytes);
    if (!check(block != NULL, "64 GiB of address space were refused"))
        return;
    check(vm_commit(block + bytes - 10, 10), "its last bytes cannot be had");
    block[bytes - 1] = 1;
    vm_release(block, bytes);
}

/* ---- counters ---- */

static void test_counters(void)
{
    enum { PAGES = 64 };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct counting counting = {.fd = {-1, -1, -1}};
    counting_start(&counting);
    char *block = vm_get(VM_MMAP, PAGES * page);
    for (size_t i = 0; block && i < PAGES; i++)
        *(volatile char *)(block + i * page) = 1;
    const struct counters counted = counting_read(&counting);
    check(counted.minor_faults >= PAGES, "%d pages were touched, %lld faults counted", PAGES,
          (long long)counted.minor_faults);
    check(counted.dtlb_misses == -1 && counted.cycles == -1 && counted.instructions == -1,
          "events that are not there were counted");
    check(counting_refusal(&counting) != NULL, "nothing is said of missing events");
    vm_free(VM_MMAP, block, PAGES * page);
    counting_open(&counting);
    volatile double x = 1;
    for (int i = 0; i < 100000; i++)
        x = x * 1.0000001;
    const struct counters opened = counting_read(&counting);
    check(counting_refusal(&counting)
              ? opened.cycles == -1 || opened.instructions == -1 || opened.dtlb_misses == -1
              : opened.instructions >= 100000,
          "%lld instructions", (long long)opened.instructions);
    counting_close(&counting);
}

/* ---- synthetic models ---- */

/* Elements per layer: q 8*8, k and v 4*8, out 8*8, gate, up and down 16*8: 576; norms 2*8. The
 * final norm has 8 elements, the head 10*8. */
static const struct config_keys llama_keys = {CONFIG_KEY_DEFAULTS,
                                              .mlp = {.activation = ACT_SILU, .kind = MLP_GATED}};

static const struct config llama = {
    .family = "llama",
    .layers = 2,
    .hidden = 8,
    .embed = 8,
    .heads = 2,
    .kv_heads = 1,
    .head_dim = 4,
    .ffn = 16,
    .vocab = 10,
    .context = 32,
    .norm = NORM_RMS,
    .norm_place = NORM_BEFORE,
    .position = POSITION_ROPE,
    .keys = &llama_keys,
    .final_norm = true,
    .tied_head = true,
    .norm_eps = 1e-5,
};

/* Elements per layer: q, k, v, out 4*64, up and down 2*128: 512; norms 4*8, biases 3*8 + 8 + 16 +
 * 8: 88. The final norm has 2*8 elements, projections in and out 32 each, the head 10*4. */
static const struct config_keys opt_keys = {CONFIG_KEY_DEFAULTS,
                                            .mlp = {ACT_RELU, MLP_PLAIN, .bias = true}};

static const struct config opt = {
    .family = "opt",
    .layers = 1,
    .hidden = 8,
    .embed = 4,
    .heads = 2,
    .kv_heads = 2,
    .head_dim = 4,
    .ffn = 16,
    .vocab = 10,
    .context = 32,
    .position_offset = 2,
    .norm = NORM_LAYER,
    .norm_place = NORM_BEFORE,
    .norm_affine = true,
    .position = POSITION_LEARNED,
    .keys = &opt_keys,
    .bias_qkv = true,
    .bias_out = true,
    .final_norm = true,
    .tied_head = true,
    .norm_eps = 1e-5,
};

static struct model *synthesize(const struct config *config, enum dtype type, uint64_t of_seed)
{
    struct model *model = NULL;
    struct err err;
    check(model_synthesize(&model, config, "a shape", type, of_seed, &err) == 0,
          "no synthetic model: %s", model ? "" : err.text);
    return model;
}

static void test_sizes(const char *name, const struct config *config, enum dtype type, size_t bytes,
                       size_t macs, size_t head_macs)
{
    struct model *model = synthesize(config, type, 1);
    if (!model)
        return;
    struct op_counts counts;
    struct err err;
    check(model_counts(&counts, model, &(struct cache_types){.all = {DTYPE_F32, DTYPE_F32}}, &err) == 0,
          "%s: not counted", name);
    check(counts.weight_bytes == bytes, "%s: %zu bytes a step, %zu wanted", name, counts.weight_bytes,
          bytes);
    const enum weights_class class = weights_class_of(type);
    check(counts.row_macs[class] == macs && counts.head_macs[class] == head_macs,
          "%s: %zu and %zu multiply-adds a row, %zu and %zu wanted", name, counts.row_macs[class],
          counts.head_macs[class], macs, head_macs);
    /* every layer multiplies Q by K and probabilities by V, and reads K and V of the KV heads */
    const size_t elements = config->layers * config->head_dim;
    check(counts.n_attend == 1 && counts.attend[0].macs == 2 * elements * config->heads &&
              counts.attend[0].entry_bytes == 2 * elements * config->kv_heads * sizeof(float) &&
              counts.append_bytes == counts.attend[0].entry_bytes,
          "%s: attention to an entry: %zu multiply-adds, %zu bytes of %zu", name, counts.attend[0].macs,
          counts.attend[0].entry_bytes, counts.append_bytes);
    check(model_weight_type(model) == type, "%s: weights of another type", name);
    model_close(model);
}

/* A layer of Llama is nine operations, as after the fusion of the segment paper, section 3.1: norm, queries with keys and
 * values, rotation, append, attention, output, norm, gate with up, down. Beside these there are taps, before each layer and
 * two at the end, which keep hidden states where a draft head reads them. */
static void test_operations(void)
{
    struct model *model = synthesize(&llama, DTYPE_F32, 1);
    struct op_list list;
    struct err err;
    if (!model)
        return;
    if (forward_list(&list, model, &err) < 0) {
        check(false, "no list of operations: %s", err.text);
    } else {
        check(list.layers.n == (1 + 9) * llama.layers + 2, "%zu operations in %zu layers",
              list.layers.n, llama.layers);
        forward_list_close(&list);
    }
    model_close(model);
}

/* Two tokens at positions 3 and 4, one with logits. They attend to 4 + 5 entries and read 5, of 2 layers with K and V
 * of 4 elements, at 2 * 2 * 4 multiply-adds each. What the last layer computes for outputs only is `out`, `gate`, `up`
 * and `down`: 64 + 3 * 128. */
static void test_work(void)
{
    struct model *model = synthesize(&llama, DTYPE_F32, 1);
    struct op_counts counts;
    struct pass_work work = {0};
    struct err err;
    if (!model)
        return;
    check(model_counts(&counts, model, &(struct cache_types){.all = {DTYPE_F32, DTYPE_F32}}, &err) == 0,
          "not counted");
    check(config_layer_macs(&model->config) == 2 * 576, "%zu multiply-adds in layers",
          config_layer_macs(&model->config));
    work_add_pass(&work, &counts, 0);
    work_add_rows(&work, &counts, 3, 2, 0);
    work_skip_outputs(&work, &counts, 1);
    work_add_logits(&work, &counts, 1);
    check(work.passes == 1 && work.weight_bytes == 4 * (2 * 576 + 80) + 4 * (2 * 16 + 8) &&
              work.kv_read_bytes == 5 * 64 && work.kv_write_bytes == 2 * 64,
          "%zu bytes of weights, %zu of entries read and %zu written", work.weight_bytes,
          work.kv_read_bytes, work.kv_write_bytes);
    check(work.macs[WEIGHTS_F32] == 2 * 2 * 576 - 448 + 80 && !work.macs[WEIGHTS_BF16] &&
              !work.macs[WEIGHTS_QUANTISED] && work.attention_macs == 9 * 32,
          "%zu and %zu multiply-adds", work.macs[WEIGHTS_F32], work.attention_macs);
    model_close(model);
}

/* Layers with a window of 4, and with chunks of 8, at positions 6 to 8; 5 of 3 * 2 experts run. */
static void test_work_masks(void)
{
    const struct op_counts counts = {.weight_bytes = 1000,
                                     .head_bytes = 100,
                                     .expert_bytes = 60,
                                     .expert_layers = 2,
                                     .experts_used = 3,
                                     .n_attend = 2,
                                     .attend = {{.window = 4, .entry_bytes = 10, .macs = 1},
                                                {.chunk = 8, .entry_bytes = 1000, .macs = 100}}};
    struct pass_work work = {0}, rolling = {0};
    work_add_pass(&work, &counts, 5);
    work_add_rows(&work, &counts, 6, 3, 0);
    check(work.weight_bytes == 1000 - 100 - 3 * 60 + 5 * 30, "%zu bytes of weights", work.weight_bytes);
    check(work.attention_macs == 3 * 4 + (7 + 8 + 1) * 100 && work.kv_read_bytes == 6 * 10 + 9 * 1000,
          "%zu multiply-adds, %zu bytes of entries", work.attention_macs, work.kv_read_bytes);
    work_add_rows(&rolling, &counts, 6, 1, 5);
    check(rolling.kv_read_bytes == 4 * 10 + 5 * 1000, "%zu bytes of a rolling cache's entries",
          rolling.kv_read_bytes);
}

/* 2e9 bytes at 10 GB/s take 200 ms; 1e9 multiply-adds at 10 and 0.5e9 at 20 GOP/s 200 + 50. */
static void test_limit(void)
{
    struct kv_types cache = {DTYPE_F32, DTYPE_F32};
    const struct cpu_options how = {.kernels = kernel_sets[0], .precision = PRECISION_INT8};
    struct roof roof = {.read_gb_s = 10, .peak = {[PEAK_F32] = {10, "a"}, [PEAK_INT8] = {20, "b"}}};
    struct pass_work work = {.weight_bytes = 1500000000,
                             .kv_read_bytes = 400000000,
                             .kv_write_bytes = 100000000,
                             .macs = {[WEIGHTS_QUANTISED] = 500000000},
                             .attention_macs = 1000000000};
    struct roof_limit limit = roof_limit(&roof, &work, &how, cache);
    check(near(limit.ms, 250, 1e-9) && strcmp(limit.kind, "f32") == 0 && near(limit.rate, 10, 0),
          "%g ms by %s", limit.ms, limit.kind);
    work.attention_macs = 700000000;
    limit = roof_limit(&roof, &work, &how, cache);
    check(near(limit.ms, 200, 1e-9) && strcmp(limit.kind, "read") == 0 && near(limit.rate, 10, 0),
          "%g ms by %s", limit.ms, limit.kind);
    /* 0.5e9 of weights and 2e9 of attention over int8 entries at 20 GOP/s */
    cache = (struct kv_types){DTYPE_Q8_CHANNEL, DTYPE_Q8_CHANNEL};
    work.attention_macs = 2000000000;
    limit = roof_limit(&roof, &work, &how, cache);
    check(near(limit.ms, 250, 1e-9) && strcmp(limit.kind, "int8") == 0, "%g ms by %s over int8 entries",
          limit.ms, limit.kind);
    cache = (struct kv_types){DTYPE_F32, DTYPE_F32};
    roof.peak[PEAK_F32].gop_s = 0;
    limit = roof_limit(&roof, &work, &how, cache);
    check(isnan(limit.ms) && !limit.kind, "a limit without a rate: %g", limit.ms);
}

/* From one layer to two, of 576 elements of matrices and 16 of norms, with a final norm of 8. Of 4 tokens of a prompt
 * the last alone passes through 448 of a layer's 576 multiply-adds at the end. */
static void test_predict(void)
{
    struct report report = {.run = {.config = llama, .kv_types = {.all = {DTYPE_F32, DTYPE_F32}}},
                            .shape = "a shape",
                            .types = {.type = DTYPE_F32}};
    struct predict_job job;
    struct err err;
    double ms[] = {1, 1, 1, 1, 1}, step_ms[] = {1, 1, 1, 1, 1};
    check(config_plan(&report.run.config, &err) == 0, "no plan");
    if (check(predict_open(&job, &report, 1000, &err) == 0, "no prediction")) {
        check(job.part->config.layers == 1, "%zu layers run", job.part->config.layers);
        predict_scale(&job, &(struct test){.batch = 1, .n_prompt = 4}, ms);
        predict_scale(&job, &(struct test){.batch = 3, .n_gen = 8, .depth = 5}, step_ms);
        const double prompt = (4 * 2 * 576 - 3 * 448.0) / (4 * 576 - 3 * 448);
        check(near(ms[PHASE_MLP], prompt, 1e-9) && near(ms[PHASE_PROJECTION], prompt, 1e-9),
              "products of a prompt take %g times as long, not %g", ms[PHASE_MLP], prompt);
        check(near(ms[PHASE_ATTENTION], 2, 1e-9) && near(ms[PHASE_OTHER], 2, 1e-9) &&
                  near(ms[PHASE_HEAD], 1, 0) && near(step_ms[PHASE_MLP], 2, 1e-9) &&
                  near(step_ms[PHASE_HEAD], 1, 0),
              "other times: %g %g %g %g", ms[PHASE_ATTENTION], ms[PHASE_OTHER], ms[PHASE_HEAD],
              step_ms[PHASE_MLP]);
    }
    predict_close(&job);
    check(predict_open(&job, &report, 3000, &err) == 0 && job.part->config.layers == 2,
          "not all layers for more bytes than one has");
    predict_close(&job);
    config_close(&report.run.config);
}

/* In either layout, element (o, k) of tensor t is number o * in + k of random stream t. The
 * position table is tensor 1, q of the only layer tensor 5, after two tables, project_in, gain and
 * bias. */
static void test_places(enum dtype type)
{
    struct model *model = synthesize(&opt, type, 3);
    struct synth synth;
    if (!check(synth_open(&synth, 3), "memory") || !model)
        return;
    const struct mat *position = &model->weights.position, *q = &model->weights.layer[0].q.weight;
    const size_t size = dtype_size(type);
    char rows[34 * 8 * 4], zero[4] = {0};
    check(position->layout == LAYOUT_ROWS && position->in_padded == 8, "positions are not rows");
    check(q->layout == LAYOUT_PACKED && q->in_padded == 32 &&
              model->weights.embed.layout == LAYOUT_PACKED,
          "matrices are not packed");
    synth_fill(&synth, 1, 0, 34 * 8, type, rows);
    check(memcmp(rows, position->data, 34 * 8 * size) == 0, "positions of %s", dtype_name(type));
    synth_fill(&synth, 5, 0, 64, type, rows);
    bool same = true;
    for (size_t o = 0; o < 16; o++)
        for (size_t k = 0; k < 32; k++) {
            const size_t at = type == DTYPE_BF16 ? k / 2 * 32 + o * 2 + k % 2 : k * 16 + o;
            const char *want = o < 8 && k < 8 ? rows + (o * 8 + k) * size : zero;
            same = same && memcmp((const char *)q->data + at * size, want, size) == 0;
        }
    check(same, "q of %s", dtype_name(type));
    synth_close(&synth);
    model_close(model);
}

/* Packs a matrix of several blocks in both dimensions. */
static void test_large_packed(enum dtype type)
{
    enum { OUT = 40, IN = 1100, PADDED = 1120 };
    struct synth synth;
    const size_t size = dtype_size(type);
    char *rows = malloc(OUT * IN * size), *packed = malloc(48 * PADDED * size);
    const struct mat mat = {.dtype = type, .out = OUT, .in = IN};
    bool same = true;
    if (!check(rows && packed && synth_open(&synth, 9), "memory"))
        return;
    synth_fill(&synth, 2, 0, OUT * IN, type, rows);
    check(synth_fill_packed(&synth, 2, 0, &mat, packed), "memory");
    for (size_t o = 0; o < 48; o++)
        for (size_t k = 0; k < PADDED; k++) {
            const size_t at = type == DTYPE_BF16
                                  ? (o / 16 * (PADDED / 2) + k / 2) * 32 + o % 16 * 2 + k % 2
                                  : (o / 16 * PADDED + k) * 16 + o % 16;
            const char *want = o < OUT && k < IN ? rows + (o * IN + k) * size : "\0\0\0";
            same = same && memcmp(packed + at * size, want, size) == 0;
        }
    check(same, "a packed matrix of %s", dtype_name(type));
    synth_close(&synth);
    free(rows), free(packed);
}

static void test_synthetic(void)
{
    struct config untied = llama;
    untied.tied_head = false;
    test_sizes("llama f32", &llama, DTYPE_F32, 4 * (2 * 576 + 80) + 4 * (2 * 16 + 8), 2 * 576, 80);
    test_sizes("llama bf16", &llama, DTYPE_BF16, 2 * (2 * 576 + 80) + 4 * (2 * 16 + 8), 2 * 576, 80);
    /* An embedding that is not also the head is not counted: a forward pass reads one row of it. */
    test_sizes("untied", &untied, DTYPE_F32, 4 * (2 * 576 + 80) + 4 * (2 * 16 + 8), 2 * 576, 80);
    /* Of the prompt's tokens only the last is projected to the width of the head. */
    test_sizes("opt f32", &opt, DTYPE_F32, 4 * (512 + 64 + 40) + 4 * (32 + 56 + 16), 512 + 32, 32 + 40);
    test_sizes("opt bf16", &opt, DTYPE_BF16, 2 * (512 + 64 + 40) + 4 * (32 + 56 + 16), 512 + 32,
               32 + 40);

    struct model *a = synthesize(&llama, DTYPE_F32, 1), *b = synthesize(&llama, DTYPE_F32, 1),
                 *c = synthesize(&llama, DTYPE_F32, 2), *d = synthesize(&untied, DTYPE_F32, 1);
    if (a && b && c && d) {
        const size_t bytes = 16 * 32 * sizeof(float); /* as packed */
        const float *q = a->weights.layer[0].q.weight.data;
        check(a->weights.head.weight.data == a->weights.embed.data, "a tied head is not the embedding");
        check(d->weights.head.weight.data && d->weights.head.weight.data != d->weights.embed.data,
              "an untied head is the embedding");
        check(memcmp(q, b->weights.layer[0].q.weight.data, bytes) == 0, "a seed's weights differ");
        check(memcmp(q, c->weights.layer[0].q.weight.data, bytes) != 0, "two seeds, the same weights");
        check(memcmp(q, a->weights.layer[1].q.weight.data, bytes) != 0, "two layers, the same weights");
        check(a->weights.layer[1].attn_norm.gain[7] == 1, "a norm's gain is not 1");
        double sum = 0;
        for (size_t i = 0; i < 16 * 32; i++)
            sum += (double)q[i] * (double)q[i];
        check(near(sqrt(sum / 64), 0.02, 0.01), "weights of deviation %g", sqrt(sum / 64));
    }
    model_close(a);
    model_close(b);
    model_close(c);
    model_close(d);
}

/* Exact fractions, by enumeration with whole numbers. */
static void test_experts(void)
{
    static const struct {
        size_t experts, ranks, used;
        double most;
    } list[] = {{128, 2, 8, 5.058881004115566},
                {10, 3, 4, 2.1904761904761907},
                {128, 4, 50, 15.35928465692084},
                {7, 3, 7, 3},
                {16, 2, 1, 1}};
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const double most = ranks_most_experts(list[i].experts, list[i].ranks, list[i].used);
        check(fabs(most - list[i].most) < 1e-12 * list[i].most,
              "%zu of %zu experts on %zu ranks: %.15g", list[i].used, list[i].experts, list[i].ranks,
              most);
    }
    check(fabs(ranks_most_experts(1024, 2, 1024) - 512) < 1e-9, "all of 1024 experts on two ranks");
}

/* Few items, against every combination of their choices. Capacities beyond KNAPSACK_STEPS bytes are rounded. */
static void test_knapsack(size_t scale)
{
    enum { ITEMS = 4, CHOICES = 4, ALL = CHOICES * CHOICES * CHOICES * CHOICES };
    uint64_t seed = check_state(check_seed(17));
    struct type_choice item[ITEMS][CHOICES];
    struct knapsack sack;
    struct err err;
    size_t span = 0;
    for (size_t i = 0; i < ITEMS; i++)
        for (size_t k = 0; k < CHOICES; k++)
            item[i][k] = (struct type_choice){
                .bytes = (k ? item[i][k - 1].bytes : 0) + scale * (1 + check_random(&seed) % 1000),
                .kld = (double)(1000 - 300 * k + check_random(&seed) % 100)};
    for (size_t i = 0; i < ITEMS; i++)
        span += item[i][CHOICES - 1].bytes - item[i][0].bytes;
    if (!check(knapsack_open(&sack, ITEMS, span, &err) == 0, "%s", err.text))
        return;
    for (size_t i = 0; i < ITEMS; i++)
        knapsack_add(&sack, i, item[i], CHOICES);
    for (size_t capacity = 0; capacity <= span; capacity += span / 37) {
        double best = INFINITY, found = 0;
        size_t steps = (size_t)((double)capacity / sack.step_bytes), bytes = 0;
        for (size_t all = 0; all < ALL; all++) {
            double cost = 0;
            size_t sum = 0;
            for (size_t i = 0, rest = all; i < ITEMS; i++, rest /= CHOICES) {
                sum += item[i][rest % CHOICES].bytes - item[i][0].bytes;
                cost += item[i][rest % CHOICES].kld;
            }
            best = sum <= capacity ? fmin(best, cost) : best;
        }
        check(scale > 1 || sack.least[steps] == best, "%zu bytes: %g, expected %g", capacity,
              sack.least[steps], best);
        for (size_t i = ITEMS; i-- > 0;) {
            const struct type_choice *taken = &item[i][knapsack_take(&sack, i, item[i], &steps)];
            bytes += taken->bytes - item[i][0].bytes;
            found += taken->kld;
        }
        check(scale > 1 ? found <= best && (double)bytes <= (double)capacity + ITEMS * sack.step_bytes
                        : found == best && bytes <= capacity,
              "%zu bytes: %zu bytes were taken at %g, expected %g", capacity, bytes, found, best);
    }
    knapsack_release(&sack);
}

int main(void)
{
    test_knapsack(1);
    test_knapsack(1000000);
    test_experts();
    test_stat();
    test_table();
    test_units();
    test_fields();
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        test_pages(ways[i]);
        test_commit(ways[i]);
    }
    test_large_reservation();
    test_counters();
    test_work();
    test_operations();
    test_work_masks();
    test_limit();
    test_predict();
    test_synthetic();
    for (int type = 0; type < DTYPE_Q8_0; type++) {
        test_places((enum dtype)type);
        test_large_packed((enum dtype)type);
    }
    return check_result();
}
