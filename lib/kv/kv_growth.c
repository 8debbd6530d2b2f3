/* How caches grow: what the option says after its colon, and the rows that an allocation adds. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "kv/kv_policy.h"

size_t kv_default_T(size_t max_rows)
{
    const double exact = sqrt(0.1 * (double)max_rows);
    size_t T = 1;
    while ((double)T * 2 - exact <= exact - (double)T && T * 2 <= max_rows)
        T *= 2;
    return T;
}

/* The key that a part begins with; NULL: none of them. */
static const struct kv_key *key_of(const char *part, const struct kv_key *keys, size_t n_keys)
{
    for (size_t i = 0; i < n_keys; i++)
        if (strncmp(part, keys[i].name, strlen(keys[i].name)) == 0)
            return &keys[i];
    return NULL;
}

int kv_take_parts(struct kv_spec *spec, const char *text, const char *parameter,
                  const struct kv_key *keys, size_t n_keys, const char *expected, struct err *err)
{
    char part[SPILL_DIR_SIZE];
    bool given[8] = {false};
    for (const char *at = parameter, *end; at; at = *end ? end + 1 : NULL) {
        const size_t len = strcspn(at, ",");
        end = at + len;
        snprintf(part, sizeof part, "%.*s", (int)size_min(len, sizeof part - 1), at);
        const struct kv_key *key = key_of(part, keys, n_keys);
        if (!key || len >= sizeof part || !key->take(spec, part + strlen(key->name)))
            return err_set(err, "cache policy \"%.80s\": %s", text, expected);
        if (given[key - keys])
            return err_set(err, "cache policy \"%.80s\": %s is given twice, once is expected", text,
                           key->name);
        given[key - keys] = true;
    }
    return 0;
}

/* ---- a row at a time, and all at once ---- */

static size_t one_row(struct kv *kv, const struct kv_spec *spec)
{
    (void)kv;
    (void)spec;
    return 1;
}

static size_t all_rows(struct kv *kv, const struct kv_spec *spec)
{
    (void)spec;
    return kv->setup.shape.max_rows;
}

const struct kv_growth kv_grow_every_row = {NULL, one_row, NULL, false};
const struct kv_growth kv_grow_once = {NULL, all_rows, NULL, false};

/* ---- in blocks ---- */

static int parse_block(struct kv_spec *spec, const char *text, const char *parameter, struct err *err)
{
    if (parse_size(parameter, &spec->r) && (spec->r == TILE_ROWS || spec->r == 2 * TILE_ROWS))
        return 0;
    return err_set(err, "cache policy \"%s\": 16 or 32 rows per block are expected after the colon",
                   text);
}

static size_t block_rows(struct kv *kv, const struct kv_spec *spec)
{
    (void)kv;
    return spec->r ? spec->r : TILE_ROWS;
}

const struct kv_growth kv_grow_in_blocks = {parse_block, block_rows, "", false};

/* ---- in steps ---- */

/* The number behind T= or one of `rows`, the names of r. */
static bool parse_named(struct kv_spec *spec, const char *parameter, const char *const *rows)
{
    size_t *target = strncmp(parameter, "T=", 2) == 0 ? &spec->T : NULL;
    const char *number = parameter + 2;
    for (; *rows && !target; rows++)
        if (strncmp(parameter, *rows, strlen(*rows)) == 0) {
            target = &spec->r;
            number = parameter + strlen(*rows);
        }
    const bool rows_too = target == &spec->r;
    return target && (rows_too ? parse_count : parse_size)(number, target) && *target;
}

static int parse_step(struct kv_spec *spec, const char *text, const char *parameter, struct err *err)
{
    static const char *const rows[] = {"r=", NULL};
    if (parse_named(spec, parameter, rows))
        return 0;
    return err_set(
        err, "cache policy \"%s\": T=COUNT or r=ROWS is expected after the colon, at least 1", text);
}

/* T of a policy that was given none; only padded rows make it a trade, unless it is asked for. */
static size_t choose_T(struct kv *kv, const struct kv_spec *spec)
{
    const bool asks = spec->tuned || spec->policy->rows == KV_ROWS_CAP;
    const struct kv_tuner *tuner = asks ? spec->tuner : NULL;
    const size_t T =
        tuner ? tuner->pick(tuner, &kv->setup.shape, kv->setup.n_seqs, &kv->setup.T_from) : 0;
    if (T)
        return T;
    kv->setup.T_from = KV_T_DEFAULT;
    return kv_default_T(kv->setup.shape.max_rows);
}

/* ceil(N / T) */
static size_t step_rows(struct kv *kv, const struct kv_spec *spec)
{
    const size_t N = kv->setup.shape.max_rows;
    kv->setup.T_from = KV_T_OPTION;
    return spec->r ? size_min(spec->r, N)
                   : div_up(N, size_min(spec->T ? spec->T : choose_T(kv, spec), N));
}

const struct kv_growth kv_grow_in_steps = {parse_step, step_rows, "r=", true};

/* ---- in steps of a fixed number of rows, unless another is given ---- */

static int parse_segment(struct kv_spec *spec, const char *text, const char *parameter, struct err *err)
{
    static const char *const rows[] = {"step=", "r=", NULL};
    spec->tuned = strcmp(parameter, "T=tuned") == 0;
    if (spec->tuned || parse_named(spec, parameter, rows))
        return 0;
    return err_set(
        err,
        "cache policy \"%s\": step=ROWS, r=ROWS, the same, T=COUNT or T=tuned is expected after the "
        "colon, at least 1",
        text);
}

/* The segment paper's 16, which is one point of bmc's curve; T=tuned: the point that is bmc's own. */
static size_t segment_rows(struct kv *kv, const struct kv_spec *spec)
{
    return spec->T || spec->r || spec->tuned ? step_rows(kv, spec)
                                             : size_min(TILE_ROWS, kv->setup.shape.max_rows);
}

const struct kv_growth kv_grow_in_segments = {parse_segment, segment_rows, "step=", true};

/* ---- a window with its slack ---- */

enum { MOST_SLACK = 16 };

static bool parse_rows(struct kv_spec *spec, const char *value)
{
    return parse_count(value, &spec->window) && spec->window > 1;
}

static bool parse_slack(struct kv_spec *spec, const char *value)
{
    return parse_double(value, &spec->slack) && spec->slack >= 0 && spec->slack <= MOST_SLACK;
}

static int parse_window(struct kv_spec *spec, const char *text, const char *parameter, struct err *err)
{
    static const struct kv_key keys[] = {{"S=", parse_rows}, {"slack=", parse_slack}};
    char expected[160];
    snprintf(expected, sizeof expected,
             "S=ROWS, at least 2, or slack=PART, from 0 to %d, is expected after the colon, or both "
             "with a comma between them",
             MOST_SLACK);
    return kv_take_parts(spec, text, parameter, keys, ARRAY_LEN(keys), expected, err);
}

static size_t window_rows(struct kv *kv, const struct kv_spec *spec)
{
    const size_t N = kv->setup.shape.max_rows;
    return size_max(spec->window ? size_min(spec->window, N) : N, 2);
}

const struct kv_growth kv_grow_window = {parse_window, window_rows, "S=", false};
