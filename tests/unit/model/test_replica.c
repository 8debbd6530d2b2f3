/* A replica receives invalid commands: it reports each one and changes nothing. */
#include "base/mem.h"
#include "ranks/ranks_tags.h"
#include "base/threads.h"
#include "tests/unit/check.h"
#include "decode/replica.h"
#include "model/config/config_keys.h"

enum { CONTEXT = 32, BATCH = 3, CHUNK = 8, VOCAB = 93, WORDS = 24 };

/* A session with sequence 0 of four KV entries, the last two pending. */
#define SESSION    COMMAND_OPEN, CONTEXT, BATCH, CHUNK, CHUNK, 0, 0, 0, 0
#define STEP(a, b) COMMAND_FORWARD, 2, 1, 0, 5, 6, a, b, 0, 2, 0
static const size_t before[] = {SESSION, STEP(0, 1), COMMAND_COMMIT, 0, 2, STEP(2, 3)};

static const struct told {
    const char *what;
    size_t n, word[WORDS];
} amiss[] = {
    {"an unknown command", 1, {COMMAND_END + 1}},
    {"a truncated command", 2, {COMMAND_COMMIT, 0}},
    {"a sequence beyond the batch", 3, {COMMAND_TRUNCATE, BATCH, 0}},
    {"more rows than a step has", 2, {COMMAND_FORWARD, CHUNK + 1, 1}},
    {"an unknown token", 9, {COMMAND_FORWARD, 1, 1, 0, VOCAB, 4, 0, 1, 0}},
    {"a position behind the context", 9, {COMMAND_FORWARD, 1, 1, 0, 5, CONTEXT, 0, 1, 0}},
    {"a query of more rows than the step has", 9, {COMMAND_FORWARD, 1, 1, 0, 5, 4, 0, 2, 0}},
    {"a draft tree with an ancestor out of range",
     12,
     {COMMAND_FORWARD, 1, 1, 0, 5, 4, 0, 1, 1, 0, 1, 1}},
    {"a draft tree with descending positions",
     15,
     {COMMAND_FORWARD, 2, 1, 0, 5, 6, 4, 5, 0, 2, 1, 0, 3, 1, 0}},
    {"more rows than are pending", 3, {COMMAND_COMMIT, 0, 3}},
    {"KV entries of an empty sequence", 3, {COMMAND_COMMIT, 1, 1}},
    {"accepting an entry that is not pending", 4, {COMMAND_ACCEPT, 0, 1, 2}},
    {"truncation beyond the end", 3, {COMMAND_TRUNCATE, 0, 3}},
    {"a fork onto itself", 4, {COMMAND_FORK, 0, 0, 2}},
    {"a fork longer than its source", 4, {COMMAND_FORK, 1, 0, 3}},
    {"a fork onto a non-empty sequence", 4, {COMMAND_FORK, 0, 1, 0}},
    {"a beam beyond the batch", 5, {COMMAND_REORDER, 2, 0, BATCH, 0}},
    {"a beam with an invalid parent", 6, {COMMAND_REORDER, 2, 0, 1, 0, 2}},
    {"logits of no row", 3, {COMMAND_LOGITS, 1, CHUNK}},
    {"too many logits", 2, {COMMAND_LOGITS, LEADER_LOGITS + 1}},
};

/* ---- a fake rank 0 ---- */

struct script {
    const size_t *word;
    size_t n;
};

static int receive(struct ranks *ranks, void *data, size_t bytes, int *from, int *tag, size_t *came,
                   struct err *err)
{
    const struct script *script = ranks->state;
    const size_t all = script->n * sizeof *script->word;
    *from = 0;
    *came = bytes;
    memset(data, 0, bytes);
    if (*tag == RANKS_TAG_BYTES)
        memcpy(data, &(uint64_t){all}, sizeof(uint64_t));
    else if (*tag == RANKS_TAG_WORDS && bytes != all)
        return err_set(err, "%zu bytes are asked for", bytes);
    else if (*tag == RANKS_TAG_WORDS)
        memcpy(data, script->word, all);
    return 0;
}

static int send(struct ranks *ranks, const void *data, size_t bytes, int to, int tag, struct err *err)
{
    (void)ranks, (void)data, (void)bytes, (void)to, (void)tag, (void)err;
    return 0;
}

static const struct ranks_ops ops = {.receive = receive, .send = send};

/* The error of the replica for `told` after the preamble. */
static int tell(struct model *model, const struct session_options *options, const struct told *told,
                struct err *err)
{
    size_t word[ARRAY_LEN(before) + WORDS + 1], n = ARRAY_LEN(before);
    memcpy(word, before, sizeof before);
    memcpy(word + n, told->word, told->n * sizeof *word);
    n += told->n;
    word[n++] = COMMAND_END;
    const struct script script = {word, n};
    struct ranks ranks = {.ops = &ops, .rank = 1, .size = 2, .state = (void *)(uintptr_t)&script};
    model->ranks = &ranks;
    model->pipeline_parallel = true;
    model->n_layers = model->config.layers;
    return replicate(model, options, err);
}

int main(void)
{
    static const struct config_keys keys = {CONFIG_KEY_DEFAULTS,
                                            .mlp = {.activation = ACT_RELU, .kind = MLP_PLAIN}};
    static const struct config config = {.layers = 2,
                                         .hidden = 32,
                                         .embed = 32,
                                         .heads = 2,
                                         .kv_heads = 2,
                                         .head_dim = 16,
                                         .ffn = 48,
                                         .vocab = VOCAB,
                                         .context = CONTEXT,
                                         .norm = NORM_LAYER,
                                         .norm_affine = true,
                                         .norm_eps = 1e-5,
                                         .position = POSITION_LEARNED,
                                         .keys = &keys,
                                         .final_norm = true};
    struct err err;
    struct model *model;
    kernels_setup();
    threads_set(1);
    if (!check(model_synthesize(&model, &config, "a test", DTYPE_F32, 7, &err) == 0, "%s", err.text))
        return check_result();
    struct session_options options = {.cpu.attn = attn_find("fused", &err),
                                      .cpu.kernels = kernels_select(NULL, &err),
                                      .threads = 1,
                                      .threads_prefill = 1};
    check(kv_spec_parse(&options.kv, "bmc", &err) == 0, "%s", err.text);
    const struct told well = {"all is well", 6, {COMMAND_COMMIT, 0, 2, COMMAND_LOGITS, 1, 1}};
    check(tell(model, &options, &well, &err) == 0, "valid commands: %s", err.text);
    for (size_t i = 0; i < ARRAY_LEN(amiss); i++)
        check(tell(model, &options, &amiss[i], &err) < 0 && strstr(err.text, "malformed command"), "%s",
              amiss[i].what);
    model_close(model);
    return check_result();
}
