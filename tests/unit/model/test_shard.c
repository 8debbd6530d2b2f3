/* All-gather that overlaps with computation: slices of steps, and buffers after a failed gather. */
#include "base/mem.h"
#include "base/threads.h"
#include "tests/unit/check.h"
#include "cpu/cpu_memory.h"
#include "model/parallel/shard.h"

enum { ROWS = 130, HIDDEN = 32, FFN = 48, MOST_GATHERS = 8 };

/* ---- slices ---- */

/* Slices cover all rows in order, are not too small, and begin at tile boundaries. */
static void test_pieces(void)
{
    for (size_t rows = 1; rows < 1200; rows++) {
        const size_t n = shard_slices(rows);
        size_t at = 0;
        bool ok = n >= 1 && n <= SHARD_MAX_SLICES;
        for (size_t i = 0; i < n; i++) {
            const struct row_range piece = shard_rows(rows, n, i);
            ok &= piece.first == at && piece.first % 16 == 0;
            ok &= n == 1 || (piece.n >= SHARD_MIN_ROWS && piece.n < rows / n + 32);
            at += piece.n;
        }
        check(ok && at == rows, "%zu rows in %zu slices", rows, n);
    }
    check(shard_slices(2 * SHARD_MIN_ROWS - 1) == 1 && shard_slices(2 * SHARD_MIN_ROWS) == 2,
          "a step is sliced from two slices on");
}

/* ---- gathers ---- */

/* Two ranks, of which the other sends zeros; counts requests. */
struct asked {
    float *all[MOST_GATHERS];
    size_t bytes[MOST_GATHERS], started, ended, at_once, pushed;
    size_t fails; /* number of the start or end that fails, from 1; starts first */
};

static int gather(struct ranks *ranks, void *all, const size_t *bytes, struct err *err)
{
    struct asked *asked = ranks->state;
    (void)err;
    asked->at_once++;
    memset((char *)all + bytes[0], 0, bytes[1]);
    return 0;
}

static int start(struct ranks *ranks, void *all, const size_t *bytes, struct err *err)
{
    struct asked *asked = ranks->state;
    asked->all[asked->started] = all;
    asked->bytes[asked->started++] = bytes[1];
    memset((char *)all + bytes[0], 0xff, bytes[1]);
    return asked->started == asked->fails ? err_set(err, "the network is gone") : 0;
}

static int end(struct ranks *ranks, struct err *err)
{
    struct asked *asked = ranks->state;
    const size_t i = asked->ended++, rows = asked->bytes[i] / sizeof(float) / (HIDDEN / 2);
    if (asked->started + asked->ended == asked->fails)
        return err_set(err, "the network is gone");
    memset(asked->all[i] + rows * (HIDDEN / 2), 0, asked->bytes[i]);
    return 0;
}

static void push(struct ranks *ranks) { ((struct asked *)ranks->state)->pushed++; }

static const struct ranks_ops ops = {
    .gather = gather, .gather_start = start, .gather_wait = end, .progress = push};

static const struct config config = {.layers = 1,
                                     .hidden = HIDDEN,
                                     .embed = HIDDEN,
                                     .heads = 2,
                                     .kv_heads = 2,
                                     .head_dim = 16,
                                     .ffn = FFN,
                                     .vocab = 90};

static const struct op_arg hidden = {0, 0, HIDDEN};

static void idle(void *arg, size_t index) { (void)arg, (void)index; }

/* Gathers both slices of a step; this rank has the left half, the right one becomes 0. False: a
 * gather failed. */
static bool join(struct shard *shard, float (*x)[HIDDEN], struct asked *asked)
{
    struct err err;
    bool ok = true;
    for (size_t i = 0; i < ROWS * HIDDEN; i++)
        x[i / HIDDEN][i % HIDDEN] = (float)i;
    for (size_t i = 0; i < 2 && ok; i++)
        ok = shard_gather_start(shard, shard->config, DIM_HIDDEN, hidden, hidden,
                                shard_rows(ROWS, 2, i), &err) == 0;
    for (size_t before = asked->pushed, i = 0; ok && i < 1000000 && asked->pushed == before; i++)
        parallel_for(1, 1, idle, NULL);
    for (size_t i = 0; i < 2 && ok; i++)
        ok = shard_gather_finish(shard, shard_rows(ROWS, 2, i), &err) == 0;
    return ok;
}

static bool joined(float (*x)[HIDDEN])
{
    bool ok = true;
    for (size_t i = 0; i < ROWS; i++)
        for (size_t k = 0; k < HIDDEN; k++)
            ok &= x[i][k] == (k < HIDDEN / 2 ? (float)(i * HIDDEN + k) : 0);
    return ok;
}

static void test_joined(const struct model *model, struct asked *asked)
{
    static float x[ROWS][HIDDEN];
    const struct device_addr buffer_of_x = cpu_addr(x);
    struct shard shard;
    struct err err;
    if (!check(shard_open(&shard, model, ROWS, &cpu_memory, &buffer_of_x, &err) == 0, "%s", err.text))
        return;
    check(join(&shard, x, asked) && joined(x), "rows of two slices are gathered");
    check(asked->started == 2 && asked->ended == 2 && asked->pushed > 0,
          "%zu gathers started, %zu ended, %zu progress calls", asked->started, asked->ended,
          asked->pushed);
    const size_t pushed = asked->pushed;
    for (size_t i = 0; i < 1000; i++)
        parallel_for(1, 1, idle, NULL);
    check(asked->pushed == pushed, "no progress call when no gather is in flight");
    check(shard_gather_start(&shard, shard.config, DIM_HIDDEN, hidden, hidden, (struct row_range){3, 9},
                             &err) == 0 &&
              asked->at_once == 1 && asked->started == 2 && joined(x),
          "few rows are gathered by a blocking call");
    shard_close(&shard);
}

/* After a failure the buffer may still be written to. */
static void test_failure(const struct model *model, struct asked *asked)
{
    static float x[ROWS][HIDDEN];
    const struct device_addr buffer_of_x = cpu_addr(x);
    struct shard shard;
    struct err err;
    if (!check(shard_open(&shard, model, ROWS, &cpu_memory, &buffer_of_x, &err) == 0, "%s", err.text))
        return;
    const size_t floats = ROWS * FFN;
    float *const buffer = shard.buffer;
    check(!join(&shard, x, asked), "failure %zu is reported", asked->fails);
    shard_close(&shard);
    float *other = mem_alloc(floats, sizeof *other);
    check(other != buffer, "failure %zu: the gather buffer is not reused", asked->fails);
    memset(buffer, 0, floats * sizeof *buffer);
    const size_t pushed = asked->pushed;
    for (size_t i = 0; i < 1000; i++)
        parallel_for(1, 1, idle, NULL);
    check(asked->pushed == pushed, "failure %zu: no progress call afterwards", asked->fails);
    free(other);
    free(buffer);
}

int main(void)
{
    test_pieces();
    for (size_t fails = 0; fails <= 4; fails++) {
        struct asked asked = {.fails = fails};
        struct ranks ranks = {.ops = &ops, .rank = 0, .size = 2, .state = &asked};
        struct model model = {.config = config, .ranks = &ranks};
        struct err err;
        check(config_plan(&model.config, &err) == 0, "%s", err.text);
        (fails ? test_failure : test_joined)(&model, &asked);
        config_close(&model.config);
    }
    return check_result();
}
