/* Models on the OpenCL device: ids are those of the CPU, and the bits of all logits are the same for every cache policy, chunk
 * and snapshot (trace.h). Growth events and copies, counted by the commands that the device got, are those of equations 1
 * and 2 of the BMC paper. The device's memory that offloaded heads take is bounded by ram=.
 *
 *   opencl_device TYPE MODEL..         TYPE: of the KV cache
 *   opencl_device --info               names the device
 *   opencl_device --programs FOLDER    a program is kept in a folder, and found there
 *   opencl_device --types [TYPE..]     weights of these types, or of all, of random bytes, are dequantised as on the CPU
 *   opencl_device --products [TYPE..]  the bits of a product of many rows are those of one and of few rows, with such weights
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

/* Opens a session for LONG tokens in passes of 64. */
enum { LONG = 512 };
static struct session *open_long(const struct model *model, const struct backend *device,
                                 const char *policy)
{
    struct err err;
    struct session *session;
    struct session_options options = options_for(device, policy, 64);
    options.context = LONG;
    options.batch = 1;
    if (session_open(&session, model, &options, &err) < 0)
        fail_with(&err);
    return session;
}

/* The logits behind LONG tokens, which the caller frees, and the bytes of the device that the cache took for them. */
static float *run_long(struct session *session, size_t *bytes)
{
    struct err err;
    const size_t before = cl_most_bytes(true), vocab = session_vocab(session);
    size_t row = 0;
    float *logits = malloc(vocab * sizeof *logits);
    for (size_t at = 0; at < LONG; at += 64) {
        uint32_t token[64];
        for (size_t i = 0; i < 64; i++)
            token[i] = (uint32_t)((3 + 2 * i + at) % vocab);
        row = batch_add(session, 0, token, 64) + 63;
        if (session_run(session, 1, &err) < 0)
            fail_with(&err);
    }
    *bytes = cl_most_bytes(false) - before;
    if (session_logits(session, &row, 1, logits, &err) < 0)
        fail_with(&err);
    return logits;
}

/* Logits of LONG tokens, whose attention has several blocks, are near those of the CPU. Returns those of the device. */
static float *check_long(const struct model *model, struct session *session, size_t *bytes)
{
    size_t none;
    struct session *host = open_long(model, NULL, "bmc");
    float *want = run_long(host, &none), *got = run_long(session, bytes), worst = 0;
    for (size_t i = 0; i < session_vocab(session); i++)
        worst = fmaxf(worst, fabsf(want[i] - got[i]));
    check(worst < 1e-4f, "%s: logits of %d tokens differ by %g from the CPU's", model->name, LONG,
          (double)worst);
    session_close(host);
    free(want);
    return got;
}

/* Offloaded heads: the least ram= bounds the device's memory, but for the largest block once more while it grows and what
 * the list of copies takes; logits are those of a cache in the device's memory. */
static void check_offload(const struct model *model, const struct backend *device)
{
    enum { LISTS = 64 << 10 };
    struct session *session = open_long(model, device, "headwise");
    const size_t ram = offload_floor(session_kv(session), LONG, 64);
    size_t whole, bytes;
    float *want = check_long(model, session, &whole), *got = NULL;
    const bool all_fit = kv_stats(session_kv(session)).resident_bytes <= ram;
    session_close(session);
    if (all_fit) { /* few heads: the entries behind those that the host has take as much */
        free(want);
        return;
    }
    char policy[64];
    snprintf(policy, sizeof policy, "headwise:ram=%zu", ram);
    session = open_long(model, device, policy);
    got = run_long(session, &bytes);
    const size_t block =
        LONG * kv_sizes_row_bytes(&kv_setup(session_kv(session))->shape.sizes[0], KV_K);
    check(kv_offload(session_kv(session)).heads_at_once > 0 &&
              memcmp(want, got, session_vocab(session) * sizeof *got) == 0,
          "%s: other logits with offloaded heads", model->name);
    check(bytes <= ram + block + LISTS && bytes < whole, "%zu bytes on the device, ram=%zu, %zu in all",
          bytes, ram, whole);
    session_close(session);
    free(want);
    free(got);
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
        token[i] = i < OUT - 1 ? OUT - 1 - i : OUT + 1; /* beyond the table: row 0 */
        mat_fetch_row(want + i * IN, &mat, OUT - 1 - i);
    }
    if (cl_table_open(&pass, type, &err) < 0 ||
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

/* ---- products ---- */

enum { P_OUT = 70, P_IN = 544, P_ROWS = 70, P_STRIDE = P_IN + 1 };

struct product_case {
    struct cl_pass pass;
    struct op_product product;
    struct op op;
    struct device_addr buffer[2]; /* x, y */
    float x[P_ROWS * P_STRIDE], y[P_ROWS * P_OUT], again[P_ROWS * P_OUT];
};

/* Computes all rows, up to `each` at a time. */
static void multiply(struct product_case *c, size_t each, float *y)
{
    struct err err;
    const struct op_step step = {.buffer = c->buffer, .rows = P_ROWS};
    for (size_t at = 0; at < P_ROWS; at += each)
        if (cl_run_linear(&c->pass, &c->op, &step, (struct row_range){at, size_min(each, P_ROWS - at)},
                          &err) < 0)
            fail_with(&err);
    cl_memory.read(y, c->buffer[1], sizeof c->y);
    if (cl_failed(&err) < 0)
        fail_with(&err);
}

/* Largest error of the first and last rows, relative to the sum of magnitudes. */
static double product_error(const struct product_case *c, const struct mat *w, size_t column)
{
    static float row[P_IN];
    double worst = 0;
    for (size_t o = 0; o < P_OUT; o++) {
        mat_fetch_row(row, w, o);
        for (size_t r = 0; r < P_ROWS; r += P_ROWS - 1) {
            double sum = 0, all = 0;
            for (size_t k = 0; k < w->in; k++) {
                const double term = (double)c->x[r * c->op.in.stride + column + k] * (double)row[k];
                sum += term;
                all += fabs(term);
            }
            worst = fmax(worst, fabs(sum - (double)c->y[r * P_OUT + o]) / all);
        }
    }
    return worst;
}

/* Inputs of rows that are vectors of 16 bytes, and of others. */
static void check_product(struct product_case *c, const struct mat *w, const char *name)
{
    for (size_t column = 0; column < 2; column++) {
        c->op.in = (struct op_arg){0, column, P_IN + column};
        multiply(c, P_ROWS, c->y);
        for (size_t each = 1; each < P_ROWS; each = each == 1 ? 8 : 4 * each + 1) {
            multiply(c, each, c->again);
            check(memcmp(c->y, c->again, sizeof c->y) == 0, "%s: %zu rows at a time: other bits", name,
                  each);
        }
        const double error = product_error(c, w, column);
        check(error < 1e-6, "%s: products are wrong by %g", name, error);
    }
}

static void check_products(enum dtype type, enum layout layout)
{
    static struct product_case c;
    static float value[80 * P_IN];
    struct err err;
    const size_t in = dtype_is_quantized(type) ? P_IN : P_IN - 3,
                 stride = dtype_is_quantized(type) ? P_IN : in,
                 bytes = layout_bytes(layout, type, P_OUT, in),
                 row_bytes = dtype_row_bytes(type, stride), block_bytes = pack_block_bytes(type, P_IN);
    unsigned char *rows = calloc(80, row_bytes), *data = calloc(1, bytes);
    uint32_t random = 1;
    for (size_t i = 0; i < ARRAY_LEN(value); i++)
        value[i] = (float)(int32_t)(random = random * 1664525 + 1013904223) * 0x1p-31f;
    memcpy(c.x, value, sizeof c.x);
    for (size_t o = 0; o < P_OUT; o++)
        dtype_from_f32(rows + o * row_bytes, type, value + o * P_IN, stride);
    if (layout == LAYOUT_ROWS)
        memcpy(data, rows, bytes);
    for (size_t at = 0; layout == LAYOUT_PACKED && at < P_OUT; at += PACK_OUT)
        pack_rows(data + at / PACK_OUT * block_bytes, P_IN, rows + at * row_bytes, stride,
                  size_min(PACK_OUT, P_OUT - at), in, type);
    const struct mat w = {type, layout, P_OUT, in, layout_in(layout, in), data};
    const struct device_addr at = cl_memory.adopt(data, bytes);
    c.pass = (struct cl_pass){0};
    c.product =
        (struct op_product){.w.matrix = {type, layout, P_OUT, in, w.in_padded, at}, .y = {1, 0, P_OUT}};
    c.op = (struct op){.kind = OP_LINEAR, .linear = {1, &c.product}};
    c.buffer[0] = cl_memory.adopt(c.x, sizeof c.x);
    c.buffer[1] = cl_memory.alloc(VM_MALLOC, sizeof c.y);
    if (cl_weights_open(&c.pass, type, &err) < 0)
        fail_with(&err);
    check_product(&c, &w, dtype_name(type));
    cl_memory.disown(at, bytes);
    cl_memory.disown(c.buffer[0], sizeof c.x);
    cl_memory.free(VM_MALLOC, c.buffer[1], sizeof c.y);
    free(rows);
    free(data);
}

static void check_all_products(enum dtype type)
{
    check_products(type, LAYOUT_PACKED);
    if (!dtype_is_quantized(type))
        check_products(type, LAYOUT_ROWS);
}

/* Weights of the types that are named, or of all. */
static int check_types(void check_one(enum dtype type), char **name, int n)
{
    int found = 0;
    for (enum dtype type = 0; type < DTYPE_COUNT; type++) {
        bool named = !n;
        for (int i = 0; i < n; i++)
            named = named || strcmp(name[i], dtype_name(type)) == 0;
        if (!named || quant_has_grid(type) || quant_types[type].ternary)
            continue;
        check_one(type);
        found++;
    }
    check(!n || found == n, "%d types of %d", found, n);
    return check_result();
}

/* A kernel from a folder of programs, whether it was compiled or found there; and kernels that there are none of. */
static int check_programs(const char *folder)
{
    static const char *const options = "-DK_TYPE=0 -DV_TYPE=0 -DMOST_DIM=256";
    struct err err;
    struct cl_kernel *kernel;
    const struct cl_program_counts before = cl_program_counts();
    cl_device_cache(folder);
    if (cl_kernel_open(&kernel, "attend.cl", "merge_blocks", options, &err) < 0)
        fail_with(&err);
    const struct cl_program_counts after = cl_program_counts();
    printf("%zu compiled, %zu found\n", after.compiled - before.compiled, after.found - before.found);
    check(cl_kernel_open(&kernel, "attend.cl", "nothing", options, &err) < 0 &&
              strstr(err.text, "kernel nothing of attend.cl: error"),
          "%s", err.text);
    check(cl_kernel_open(&kernel, "rows.cl", "add_rows", "-Dkernel=1", &err) < 0 &&
              strstr(err.text, "its driver does not compile rows.cl"),
          "%s", err.text);
    return check_result();
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

/* Factors of all elements, of each column, and of each row. */
static void check_scale(void)
{
    enum { ROWS = 2, WIDTH = 3 };
    static struct cl_pass pass;
    static const float by[WIDTH] = {2, -1, 0.5f}, temperature[ROWS] = {3, 4},
                       x[ROWS * WIDTH] = {1, 2, 4, 8, 16, 32};
    struct err err;
    const struct device_addr factors = cl_memory.adopt(by, sizeof by),
                             to = cl_memory.alloc(VM_MALLOC, sizeof x);
    const struct {
        struct op_scale scale;
        float want[ROWS * WIDTH];
    } run[] = {{{.factor = 2}, {2, 4, 8, 16, 32, 64}},
               {{.by = factors}, {2, 4, 8, 16, 32, 64}},
               {{.by = factors, .columns = true}, {2, -2, 2, 16, -16, 16}},
               {{.temperature = true}, {3, 6, 12, 32, 64, 128}}};
    if (cl_kernel_open(&pass.map, "rows.cl", "map_rows", "", &err) < 0)
        fail_with(&err);
    for (size_t i = 0; i < ARRAY_LEN(run); i++) {
        const struct op op = {
            .kind = OP_SCALE, .out = {0, 0, WIDTH}, .width = WIDTH, .scale = run[i].scale};
        const struct op_step step = {.buffer = &to, .rows = ROWS, .temperature = temperature};
        float got[ROWS * WIDTH];
        cl_memory.write(to, x, sizeof x);
        if (cl_run_rows(&pass, &op, &step, (struct row_range){0, ROWS}, &err) < 0)
            fail_with(&err);
        cl_memory.read(got, to, sizeof got);
        check(memcmp(got, run[i].want, sizeof got) == 0, "factors %zu: %g, %g .. %g", i, (double)got[0],
              (double)got[1], (double)got[5]);
    }
    cl_memory.free(VM_MALLOC, to, sizeof x);
    cl_memory.disown(factors, sizeof by);
}

/* Blocks are found by the addresses in them. */
static void check_owners(void)
{
    enum { N = 9 };
    cl_address block[N];
    for (size_t i = 0; i < N; i++)
        block[i] = cl_alloc(i * 4096);
    cl_free(block[3]);
    for (size_t i = 0; i < N; i++)
        check(cl_owns(block[i]) == (i != 3) && (i == 0 || cl_owns(block[i] + i * 4096 - 1) == (i != 3)),
              "addresses of block %zu", i);
    check(!cl_owns(0) && !cl_owns((cl_address)(uintptr_t)block) && !cl_owns(UINT64_MAX),
          "addresses in no block");
    for (size_t i = 0; i < N; i++)
        cl_free(i == 3 ? 0 : block[i]);
}

/* Operations that other ones come with are refused alone, too. */
static void check_refusals(const struct backend *device)
{
    static const struct kv_shape shape;
    static const struct op op[] = {
        {.kind = OP_HEADS},   {.kind = OP_BLEND},
        {.kind = OP_MATCH},   {.kind = OP_SPARSIFY},
        {.kind = OP_ROUND},   {.kind = OP_CHOOSE},
        {.kind = OP_RECUR},   {.kind = OP_RECUR_END},
        {.kind = OP_GATHER},  {.kind = OP_ATTEND, .attend.most = 1},
        {.kind = OP_KEEP_KV}, {.kind = OP_ROUTE, .route.kind = ROUTER_SPARSEMIXER}};
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(op); i++) {
        (void)!err_set(&err, "nothing");
        check(device->refuse(&op[i], &shape, &err) < 0 && strstr(err.text, "backend opencl lacks "),
              "operation %d: %s", (int)op[i].kind, err.text);
    }
}

/* What does not depend on a model. */
static void check_device(const struct backend *device)
{
    check_memory();
    check_owners();
    check_scale();
    check_refusals(device);
}

int main(int argc, char **argv)
{
    struct err err;
    struct cache_types types;
    const char *scales, *what = argc > 1 ? argv[1] : "";
    if (argc < (*what == '-' ? 2 : 3))
        return 2;
    kernels_setup();
    const struct backend *device = backend_find("opencl", NULL, &err);
    if (!device) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    if (strcmp(what, "--info") == 0) {
        printf("device of a %s: %s, driver %s\n", cl_limits()->is_cpu ? "CPU" : "GPU",
               cl_limits()->name, cl_limits()->driver);
        return 0;
    }
    if (strcmp(what, "--programs") == 0)
        return check_programs(argv[2]);
    if (strcmp(what, "--types") == 0)
        return check_types(check_type, argv + 2, argc - 2);
    if (strcmp(what, "--products") == 0)
        return check_types(check_all_products, argv + 2, argc - 2);
    check_device(device);
    if (cache_types_parse(&types, what, &scales, &err) < 0)
        fail_with(&err);
    for (int i = 2; i < argc; i++) {
        struct model *model;
        if (model_open(&model, argv[i], &err) < 0)
            fail_with(&err);
        check_model(model, device, types.all);
        if (i == 2 && types.all.k == DTYPE_F32)
            check_offload(model, device);
        for (size_t r = 16; i == 2 && r <= 32; r *= 2)
            check_counts(model, device, r);
        model_close(model);
    }
    return check_result();
}
