/* Rows that ranks join beside arithmetic: the pieces that steps are cut into, and what is left of them where a gather fails. */
#include "base/mem.h"
#include "base/threads.h"
#include "check.h"
#include "model/part.h"

enum { ROWS = 130, HIDDEN = 32, FFN = 48, MOST_GATHERS = 8 };

/* ---- pieces ---- */

/* They are all rows in their order, none of few rows; each begins where a tile does. */
static void test_pieces(void)
{
    for (size_t rows = 1; rows < 1200; rows++) {
        const size_t n = part_pieces(rows);
        size_t at = 0;
        bool ok = n >= 1 && n <= PART_MOST_PIECES;
        for (size_t i = 0; i < n; i++) {
            const struct rows piece = part_rows(rows, n, i);
            ok &= piece.first == at && piece.first % 16 == 0;
            ok &= n == 1 || (piece.n >= PART_LEAST_ROWS && piece.n < rows / n + 32);
            at += piece.n;
        }
        check(ok && at == rows, "%zu rows in %zu pieces", rows, n);
    }
    check(part_pieces(2 * PART_LEAST_ROWS - 1) == 1 && part_pieces(2 * PART_LEAST_ROWS) == 2,
          "a step is cut where it is two pieces long");
}

/* ---- gathers ---- */

/* Ranks of which the other one sends zeros, and what they were asked for. */
struct asked {
    float *all[MOST_GATHERS];
    size_t bytes[MOST_GATHERS], started, ended, at_once, pushed;
    size_t fails; /* the start, or the end, that does; counted from 1, starts first */
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

static const struct ranks_ops ops = {.gather = gather, .start = start, .end = end, .push = push};

static const struct config config = {.layers = 1,
                                     .hidden = HIDDEN,
                                     .embed = HIDDEN,
                                     .heads = 2,
                                     .kv_heads = 2,
                                     .head_dim = 16,
                                     .ffn = FFN,
                                     .vocab = 90};

static void idle(void *arg, size_t index) { (void)arg, (void)index; }

/* Both pieces of a step, of which this rank has the left half: rows of x become 0 on the right, with nothing of one piece in the
 * other. False: a gather failed. */
static bool join(struct part *part, float (*x)[HIDDEN], struct asked *asked)
{
    struct err err;
    bool ok = true;
    for (size_t i = 0; i < ROWS * HIDDEN; i++)
        x[i / HIDDEN][i % HIDDEN] = (float)i;
    for (size_t i = 0; i < 2 && ok; i++)
        ok = part_start(part, DIM_HIDDEN, x[0], x[0], HIDDEN, part_rows(ROWS, 2, i), &err) == 0;
    for (size_t before = asked->pushed, i = 0; ok && i < 1000000 && asked->pushed == before; i++)
        threads_each(1, 1, idle, NULL);
    for (size_t i = 0; i < 2 && ok; i++)
        ok = part_finish(part, part_rows(ROWS, 2, i), &err) == 0;
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
    struct part part;
    struct err err;
    if (!check(part_open(&part, model, ROWS, &err) == 0, "%s", err.text))
        return;
    check(join(&part, x, asked) && joined(x), "rows in two pieces are joined");
    check(asked->started == 2 && asked->ended == 2 && asked->pushed > 0,
          "%zu gathers are started, %zu ended, pushed %zu times", asked->started, asked->ended,
          asked->pushed);
    const size_t pushed = asked->pushed;
    for (size_t i = 0; i < 1000; i++)
        threads_each(1, 1, idle, NULL);
    check(asked->pushed == pushed, "nothing is pushed when all has come");
    check(part_start(&part, DIM_HIDDEN, x[0], x[0], HIDDEN, (struct rows){3, 9}, &err) == 0 &&
              asked->at_once == 1 && asked->started == 2 && joined(x),
          "few rows are joined at once");
    part_close(&part);
}

/* Whoever is told of a failure may still write to where it was asked to. */
static void test_failure(const struct model *model, struct asked *asked)
{
    static float x[ROWS][HIDDEN];
    struct part part;
    struct err err;
    if (!check(part_open(&part, model, ROWS, &err) == 0, "%s", err.text))
        return;
    const size_t floats = ROWS * FFN;
    float *const room = part.room;
    check(!join(&part, x, asked), "failure %zu is told", asked->fails);
    part_close(&part);
    float *other = mem_alloc(floats, sizeof *other);
    check(other != room, "failure %zu: what may still be written is somebody else's", asked->fails);
    memset(room, 0, floats * sizeof *room);
    const size_t pushed = asked->pushed;
    for (size_t i = 0; i < 1000; i++)
        threads_each(1, 1, idle, NULL);
    check(asked->pushed == pushed, "failure %zu: pushed when all is over", asked->fails);
    free(other);
    free(room);
}

int main(void)
{
    test_pieces();
    for (size_t fails = 0; fails <= 4; fails++) {
        struct asked asked = {.fails = fails};
        struct ranks ranks = {.ops = &ops, .rank = 0, .size = 2, .state = &asked};
        const struct model model = {.config = config, .ranks = &ranks};
        (fails ? test_failure : test_joined)(&model, &asked);
    }
    return check_result();
}
