/* Continuing an untrusted snapshot under every cache policy: whatever its KV entries and padding
 * contain, the next step gives the same logits everywhere, or non-finite ones everywhere. Sizes,
 * hash and model_id are fixed up first. The model has one layer of one head of 4. */
#include <math.h>

#include "decode/snapshot.h"
#include "model/config/config_keys.h"
#include "tests/fuzz/support/small_session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CONTEXT = 40, VOCAB = 8, STEPS = 2 };

static struct model *the_model(void)
{
    static struct model *model;
    static const struct config_keys keys = {CONFIG_KEY_DEFAULTS,
                                            .mlp = {.activation = ACT_SILU, .kind = MLP_GATED}};
    static const struct config config = {.family = "fuzz",
                                         .layers = 1,
                                         .hidden = 4,
                                         .embed = 4,
                                         .heads = 1,
                                         .kv_heads = 1,
                                         .head_dim = 4,
                                         .ffn = 4,
                                         .vocab = VOCAB,
                                         .context = CONTEXT,
                                         .norm = NORM_RMS,
                                         .norm_eps = 1e-5,
                                         .norm_affine = true,
                                         .final_norm = true,
                                         .position = POSITION_ROPE,
                                         .keys = &keys,
                                         .tied_head = true};
    struct err err;
    if (!model && model_synthesize(&model, &config, "fuzz", DTYPE_F32, 1, &err) < 0)
        abort();
    return model;
}

/* Loads the first sequence, with all KV entries or all but the last, and runs two steps. False
 * if it does not fit. */
static bool go_on(const struct snapshot *snapshot, const char *policy, bool fewer, float *logits)
{
    const size_t all = (size_t)snapshot_seq(snapshot, 0)->n_rows, rows = all - (fewer && all > 1);
    const uint32_t token[STEPS] = {3, 5};
    const size_t last = 0;
    struct session *session;
    struct err err;
    bool done = false;
    if (small_session_open(&session, the_model(), policy, snapshot_types(snapshot).all.k, CONTEXT,
                           &err) < 0)
        return false;
    if (rows + STEPS <= CONTEXT && snapshot_load(session, 0, snapshot, 0, rows, &err) == 0)
        for (size_t i = 0; i < STEPS; i++) {
            batch_add(session, 0, &token[i], 1);
            if (session_run(session, 1, &err) < 0 ||
                session_logits(session, &last, 1, logits + i * VOCAB, &err) < 0)
                abort();
            done = true;
        }
    session_close(session);
    return done;
}

static bool same(const float *a, const float *b)
{
    for (size_t i = 0; i < STEPS * VOCAB; i++)
        if (isfinite(a[i]) != isfinite(b[i]) ||
            (isfinite(a[i]) && fabsf(a[i] - b[i]) > 1e-3f * (1 + fabsf(a[i]))))
            return false;
    return true;
}

static void compare(const struct snapshot *snapshot)
{
    float want[STEPS * VOCAB], got[STEPS * VOCAB];
    for (int fewer = 0; fewer < 2; fewer++) {
        const bool done = go_on(snapshot, kv_policy_name(0), fewer, want);
        for (size_t i = 1; kv_policy_name(i); i++)
            if (go_on(snapshot, kv_policy_name(i), fewer, got) != done || (done && !same(want, got)))
                abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct snapshot *snapshot;
    struct err err;
    char path[64];
    unsigned char *copy = input_copy(data, size);
    if (!copy)
        return 0;
    if (size >= sizeof(struct kvfile_head))
        ((struct kvfile_head *)(void *)copy)->model_id = the_model()->file.model_id;
    input_seal_snapshot(copy, size);
    const int fd = input_file(copy, size, path);
    if (fd >= 0 && snapshot_open(&snapshot, path, the_model(), &err) == 0) {
        compare(snapshot);
        snapshot_close(snapshot);
    }
    if (fd >= 0)
        close(fd);
    input_free(copy, size);
    return 0;
}
