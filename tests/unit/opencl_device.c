/* Models on the OpenCL device: ids are those of the CPU, and the bits of all logits are the same for every cache policy, chunk
 * and snapshot (trace.h). Growth events and copies, counted by the commands that the device got, are those of equations 1
 * and 2 of the BMC paper.
 *
 *   opencl_device CACHE TYPE MODEL..   CACHE: folder of programs; TYPE: of the KV cache
 *   opencl_device --info               names the device
 *   opencl_device --types              weights of every type, of random bytes, are dequantised as on the CPU
 *
 * Status 77: there is no device. */
#include "opencl/cl_pass.h"
#include "opencl/opencl.h"
#include "quant/pack.h"
#include "tests/unit/trace.h"

static void check_model(const struct model *model, const struct backend *device, struct kv_types types)
{
    static const struct {
        const char *policy;
        size_t chunk;
    } run[] = {{"bmc:r=16,grow=now", 7}, {"bmc", 1},      {"iterative", 5},
               {"upfront", 19},          {"paged:16", 7}, {"segment", 4},
               {"reserve", 7},           {"shift", 7},    {"headwise", 7}};
    struct trace cpu, first, trace;
    for (size_t i = 0; i < ARRAY_LEN(run); i++) {
        struct session_options options = options_for(NULL, run[i].policy, run[i].chunk);
        options.kv_types.all = types;
        run_model(&cpu, model, &options);
        options.backend = device;
        run_model(&trace, model, &options);
        check(cpu.n == trace.n && memcmp(cpu.id, trace.id, cpu.n * sizeof *cpu.id) == 0,
              "%s: other ids than on the CPU with %s", model->name, run[i].policy);
        if (i == 0)
            first = trace;
        /* a rolling cache with a short window has no room for the tree */
        check(trace.n != first.n || same_trace(&trace, &first),
              "%s: other ids or logits with %s and chunks of %zu", model->name, run[i].policy,
              run[i].chunk);
    }
}

/* N rows in growth events of r rows, one row at a time: N / r events, which copy r, 2 r .. rows, N (N / r - 1) / 2 in
 * all. */
static void check_counts(const struct model *model, const struct backend *device, size_t r)
{
    enum { ROWS = 64 };
    struct err err;
    struct session *session;
    char policy[32];
    snprintf(policy, sizeof policy, "bmc:r=%zu,grow=now", r);
    const struct session_options options = options_for(device, policy, 1);
    if (session_open(&session, model, &options, &err) < 0)
        fail_with(&err);
    const struct kv_shape *shape = &kv_setup(session_kv(session))->shape;
    const struct opencl_counts before = opencl_counts();
    for (size_t i = 0; i < ROWS; i++) {
        const uint32_t token = 3;
        batch_add(session, 0, &token, 1);
        if (session_run(session, 1, &err) < 0)
            fail_with(&err);
    }
    const struct opencl_counts after = opencl_counts();
    size_t row_bytes = 0;
    for (size_t l = 0; l < shape->layers; l++)
        row_bytes +=
            2 * kv_sizes_of(shape, l)->kv_heads * kv_sizes_of(shape, l)->head_dim * sizeof(float);
    const size_t events = ROWS / r;
    check(after.copied_bytes - before.copied_bytes == ROWS * (events - 1) / 2 * row_bytes,
          "r = %zu: %zu bytes copied", r, (size_t)(after.copied_bytes - before.copied_bytes));
    check(after.allocations - before.allocations == events * 2 * shape->layers, "r = %zu: %zu blocks",
          r, (size_t)(after.allocations - before.allocations));
    session_close(session);
}

/* Rows of a packed matrix of random bytes, as a table of embeddings. */
static void check_type(enum dtype type)
{
    enum { OUT = 32, IN = 512 };
    static struct cl_pass pass;
    struct err err;
    const size_t bytes = layout_bytes(LAYOUT_PACKED, type, OUT, IN);
    unsigned char *data = malloc(bytes);
    static float want[OUT * IN], got[OUT * IN];
    uint32_t token[OUT], random = 1;
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)((random = random * 1664525 + 1013904223) >> 24);
    const struct mat mat = {type, LAYOUT_PACKED, OUT, IN, IN, data};
    const struct device_addr at = cl_memory.adopt(data, bytes),
                             to = cl_memory.alloc(VM_MALLOC, sizeof got);
    const struct op op = {.kind = OP_FETCH,
                          .out = {0, 0, IN},
                          .width = IN,
                          .fetch = {.table = {type, LAYOUT_PACKED, OUT, IN, IN, at}, .row = ROW_TOKEN}};
    for (uint32_t i = 0; i < OUT; i++) {
        token[i] = OUT - 1 - i;
        mat_fetch_row(want + i * IN, &mat, token[i]);
    }
    if (cl_weights_open(&pass, type, &err) < 0 ||
        cl_run_fetch(&pass, &op, &(struct op_step){.buffer = &to, .rows = OUT, .token = token},
                     (struct row_range){0, OUT}, &err) < 0 ||
        cl_failed(&err) < 0)
        fail_with(&err);
    cl_memory.read(got, to, sizeof got);
    size_t other = 0;
    for (size_t i = 0; i < OUT * IN; i++)
        other += want[i] != got[i] && !(isnan(want[i]) && isnan(got[i]));
    check(other == 0, "%s: %zu of %d weights differ, %g instead of %g the first", dtype_name(type),
          other, OUT * IN, (double)got[0], (double)want[0]);
    cl_memory.disown(at, bytes);
    cl_memory.free(VM_MALLOC, to, sizeof got);
    free(data);
}

/* A kernel from a folder of programs: compiled once, found by another name for the same text, compiled again where the file
 * is damaged. */
static void check_programs(const char *folder)
{
    struct err err;
    struct cl_kernel *kernel;
    const struct cl_program_counts before = cl_program_counts();
    cl_device_cache(folder);
    if (cl_kernel_open(&kernel, "experts.cl", "route_rows", "-DFIRST", &err) < 0)
        fail_with(&err);
    const struct cl_program_counts after = cl_program_counts();
    check(after.compiled + after.found == before.compiled + before.found + 1, "%zu and %zu programs",
          after.compiled, after.found);
    check(cl_kernel_open(&kernel, "experts.cl", "nothing", "-DFIRST", &err) < 0 &&
              strstr(err.text, "kernel nothing of experts.cl: error"),
          "%s", err.text);
    check(cl_kernel_open(&kernel, "rows.cl", "add_rows", "-Dkernel=1", &err) < 0 &&
              strstr(err.text, "its driver does not compile rows.cl"),
          "%s", err.text);
}

/* Blocks never have more than the device's memory in all, and those that are freed no longer count. */
static void check_memory(void)
{
    const cl_address block = cl_alloc(4096);
    check(block && !cl_alloc(cl_limits()->memory_bytes - 4095) && cl_limits()->memory_bytes > 4096,
          "blocks of more than the memory of the device");
    cl_free(block);
    for (size_t i = 0; i < 9; i++) {
        const cl_address part = cl_alloc(cl_limits()->memory_bytes / 8);
        check(part != 0, "freed memory is not given again");
        cl_free(part);
    }
}

int main(int argc, char **argv)
{
    struct err err;
    struct cache_types types;
    const char *scales;
    const bool info = argc == 2 && strcmp(argv[1], "--info") == 0,
               all_types = argc == 2 && strcmp(argv[1], "--types") == 0;
    if (argc < 4 && !info && !all_types)
        return 2;
    kernels_setup();
    const struct backend *device = backend_find("opencl", argc == 2 ? NULL : argv[1], &err);
    if (!device) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    if (info) {
        printf("device of a %s: %s, driver %s\n", cl_limits()->is_cpu ? "CPU" : "GPU",
               cl_limits()->name, cl_limits()->driver);
        return 0;
    }
    for (enum dtype type = 0; all_types && type < DTYPE_COUNT; type++)
        if (!quant_has_grid(type) && !quant_types[type].ternary)
            check_type(type);
    if (all_types)
        return check_result();
    check_programs(argv[1]);
    check_memory();
    if (cache_types_parse(&types, argv[2], &scales, &err) < 0)
        fail_with(&err);
    for (int i = 3; i < argc; i++) {
        struct model *model;
        if (model_open(&model, argv[i], &err) < 0)
            fail_with(&err);
        check_model(model, device, types.all);
        for (size_t r = 16; i == 3 && r <= 32; r *= 2)
            check_counts(model, device, r);
        model_close(model);
    }
    return check_result();
}
