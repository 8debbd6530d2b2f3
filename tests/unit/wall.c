/* Runs a model on a backend whose memory cannot be used outside of it (poisoned.h), and on the CPU, both with the plain C
 * kernels: ids, the bits of all logits and the inputs that an observer gets are equal, in prefill, decoding of two
 * sequences, a token tree of which a part is accepted, a fork, and from a snapshot; also with experts read from the file.
 *
 * A model whose LM head has weights of its own, and whose layers have no state, is also split: the backend has the last layer
 * and the head.
 *
 *   wall MODEL [POLICY..]      checks the policies, bmc by default
 *   wall --touch MODEL         reads an activation as the CPU can: ends with status 1 and a backtrace
 *   wall --touch-weights MODEL reads the weights of a session in the mapped file */
#include "backend/split.h"
#include "model/experts/expert_store.h"
#include "poisoned.h"
#include "tests/unit/trace.h"

enum { STORED_BYTES = 80 << 10, CHUNK = 7 };

/* The model with experts that are read from the file, of which few fit. */
static struct model *open_stored(const char *path, const struct backend *backend)
{
    const struct expert_store_options few = {.ram = STORED_BYTES};
    struct model *model;
    struct err err;
    if (model_open(&model, path, &err) < 0 || expert_store_open(model, &few, backend->memory, &err) < 0)
        fail_with(&err);
    check(model->store, "%s: all experts fit", path);
    return model;
}

static void check_policy(const struct model *model, const struct model *stored,
                         const struct backend *backend, const char *policy)
{
    struct trace trace[3];
    const size_t before = poison.windows, adopted = poison.adopted;
    const struct session_options cpu = options_for(NULL, policy, CHUNK),
                                 options = options_for(backend, policy, CHUNK);
    run_model(&trace[0], model, &cpu);
    run_model(&trace[1], model, &options);
    check(poison.windows > before + PROMPT, "%s: the backend did not run", policy);
    check(poison.adopted > adopted, "%s: no weights are adopted", policy);
    check(same_trace(&trace[0], &trace[1]), "%s: other ids or logits", policy);
    check(hash_equal(&trace[0].inputs_hash, &trace[1].inputs_hash), "%s: other inputs of products",
          policy);
    if (strcmp(policy, "bmc") == 0 && !model->config.tied_head &&
        !config_state_shape(&model->config).conv && !stored) {
        struct session_options split = options;
        split.gpu_layers = 2;
        run_model(&trace[2], model, &split);
        check(same_trace(&trace[0], &trace[2]) &&
                  hash_equal(&trace[0].inputs_hash, &trace[2].inputs_hash),
              "%s: other ids, logits or inputs of a model that is split", policy);
    }
    if (!stored)
        return;
    run_model(&trace[2], stored, &options);
    check(same_trace(&trace[0], &trace[2]), "%s: other ids or logits with experts on disk", policy);
}

/* ---- too little memory for weights ---- */

static size_t adoptions_left;

static struct device_addr adopt_some(const void *memory, size_t bytes)
{
    return adoptions_left-- ? poisoned_memory.adopt(memory, bytes) : (struct device_addr){0};
}

/* A session that cannot have all weights is not opened, and gives back those that it has. */
static void check_refusal(const struct model *model, struct backend backend)
{
    struct backend_memory memory = poisoned_memory;
    struct session *session;
    struct err err;
    struct session_options options = options_for(&backend, "bmc", CHUNK);
    memory.adopt = adopt_some;
    backend.memory = &memory;
    for (size_t most = 0; most < 8; most += 7) {
        adoptions_left = most;
        const size_t before = poison.n;
        check(session_open(&session, model, &options, &err) < 0 && err.code == ERR_NO_MEMORY &&
                  strstr(err.text, "bytes of weights on the backend poisoned"),
              "%s", err.text);
        check(poison.n == before, "%zu blocks are left", poison.n - before);
    }
}

/* ---- a device that lacks something ---- */

static size_t refused_taps;

static int refuse_head(const struct op *op, const struct kv_shape *shape, struct err *err)
{
    (void)shape;
    refused_taps += op->kind == OP_TAP;
    return op->phase == PHASE_HEAD ? err_set(err, "backend poisoned lacks a head") : 0;
}

/* A device that lacks the head, and is given no more, has nothing. Taps, of which one has no layer, are no reason. */
static void check_split(const struct model *model, struct backend backend)
{
    struct session *session;
    struct err err;
    backend.refuse = refuse_head;
    struct session_options options = options_for(&backend, "bmc", CHUNK);
    options.gpu_layers = 1;
    options.fallback = true;
    check(session_open(&session, model, &options, &err) < 0 &&
              strstr(err.text, "no layer is left to the device: backend poisoned lacks a head"),
          "%s", err.text);
    check(!refused_taps, "%zu taps are refused", refused_taps);
}

static struct device_addr alloc_none(enum vm_alloc how, size_t bytes)
{
    (void)how;
    (void)bytes;
    return (struct device_addr){0};
}

/* Copies to a device without memory for what lies between are left out. The failure stays: nothing may be split after. */
static void check_copies(struct backend backend)
{
    static struct backend_memory memory;
    const float row[16] = {0};
    struct err err;
    memory = poisoned_memory;
    memory.alloc = alloc_none;
    backend.memory = &memory;
    const struct backend_memory *split = split_memory(&backend);
    const struct device_addr at = poisoned_memory.alloc(VM_MALLOC, sizeof row);
    const struct memory_copy copy = {.to = at, .from = cpu_addr(row), .bytes = sizeof row};
    const struct memory_store store = {.to = at,
                                       .from = cpu_addr(row),
                                       .type = DTYPE_F32,
                                       .from_type = DTYPE_F32,
                                       .rows = 1,
                                       .d = ARRAY_LEN(row),
                                       .to_stride = sizeof row,
                                       .from_stride = sizeof row};
    check(memory_failed(split, &err) == 0, "%s", err.text);
    split->copy(&copy, 1);
    check(split->store(&store, 1), "values do not fit");
    check(memory_failed(split, &err) < 0 && err.code == ERR_NO_MEMORY, "copies did not fail");
    poisoned_memory.free(VM_MALLOC, at, sizeof row);
}

/* ---- what a file above the wall might do ---- */

/* Reads an activation or, with `--touch-weights`, a matrix of the mapped file that a session uses. */
static void touch(const struct backend *backend, const struct model *model, bool weights)
{
    struct err err;
    struct session *session;
    const struct session_options options = options_for(backend, "bmc", CHUNK);
    if (session_open(&session, model, &options, &err) < 0)
        fail_with(&err);
    const struct device_addr at = backend->memory->alloc(VM_MALLOC, 64);
    const float *x = weights ? model->weights.layer[0].q.weight.data : cpu_at(at);
    printf("%f\n", (double)*x);
}

int main(int argc, char **argv)
{
    struct err err;
    struct model *model;
    const struct backend backend = poisoned_backend();
    const bool touches = argc > 2 && strncmp(argv[1], "--touch", 7) == 0;
    if (argc < 2)
        return 2;
    kernels_setup();
    if (model_open(&model, argv[touches ? 2 : 1], &err) < 0)
        fail_with(&err);
    if (touches)
        touch(&backend, model, argv[1][7] != 0);
    check_refusal(model, backend);
    check_split(model, backend);
    struct model *stored = model->config.moe->experts ? open_stored(argv[1], &backend) : NULL;
    if (argc == 2)
        check_policy(model, stored, &backend, "bmc");
    for (int i = 2; i < argc; i++)
        check_policy(model, stored, &backend, argv[i]);
    check_copies(backend);
    model_close(stored);
    model_close(model);
    return check_result();
}
