/* Growth of caches: parses the policies' parameters, and computes r, the rows per growth event. */
#include "base/number.h"
#include "base/text_util.h"
#include "kv/kv_policy.h"

size_t kv_default_T(size_t max_rows)
{
    const double exact = sqrt(0.1 * (double)max_rows);
    size_t T = 1;
    while ((double)T * 2 - exact <= exact - (double)T && T * 2 <= max_rows)
        T *= 2;
    return T;
}

static const struct kv_param *param_of(const char *part, const struct kv_param *params, size_t n_params)
{
    for (size_t i = 0; i < n_params; i++)
        if (strncmp(part, params[i].name, strlen(params[i].name)) == 0)
            return &params[i];
    return NULL;
}

/* The sentence about a parameter that is none, or one with a wrong value; of names like it the nearest is suggested. */
static int refuse_param(const char *text, const char *part, const struct kv_param *params,
                        size_t n_params, const char *expected, struct err *err)
{
    char key[16], near[48] = "";
    const struct kv_param *known = param_of(part, params, n_params);
    snprintf(key, sizeof key, "%.*s=", (int)size_min(strcspn(part, "="), sizeof key - 2), part);
    for (size_t i = 0; i < n_params && !known && !*near; i++)
        if (strlen(key) > 2 && edit_distance(key, params[i].name) <= 1)
            snprintf(near, sizeof near, "; did you mean %s?", params[i].name);
    return err_set(err, "cache policy \"%.80s\": \"%.40s\" is %s%s (%s)", text, part,
                   known ? "not accepted" : "no parameter of it", near, expected);
}

int kv_parse_params(struct kv_spec *spec, const char *text, const char *parameter,
                    const struct kv_param *params, size_t n_params, const char *expected,
                    struct err *err)
{
    char part[OFFLOAD_DIR_SIZE];
    bool given[8] = {false};
    for (const char *at = parameter, *end; at; at = *end ? end + 1 : NULL) {
        const size_t len = strcspn(at, ",");
        end = at + len;
        snprintf(part, sizeof part, "%.*s", (int)size_min(len, sizeof part - 1), at);
        const struct kv_param *param = param_of(part, params, n_params);
        if (!param || len >= sizeof part || !param->take(spec, part + strlen(param->name)))
            return refuse_param(text, part, params, n_params, expected, err);
        if (given[param - params])
            return err_set(err, "cache policy \"%.80s\": %s is given twice, once is expected", text,
                           param->name);
        given[param - params] = true;
    }
    return 0;
}

const struct kv_growth kv_grow_every_row = {.fixed = 1}, kv_grow_once = {.fixed = SIZE_MAX};

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

const struct kv_growth kv_grow_in_blocks = {.parse = parse_block, .rows = block_rows, .r_prefix = ""};

/* Returns T where no option gives it: from the tuner with T=tuned or where attention computes
 * padding, else the default of the BMC paper. */
static size_t choose_T(struct kv *kv, const struct kv_spec *spec)
{
    const bool ask = spec->tuned || spec->policy->attend == KV_ATTEND_PADDED;
    const struct kv_tuner *tuner = ask ? spec->tuner : NULL;
    const size_t T =
        tuner ? tuner->pick(tuner, &kv->setup.shape, kv->setup.n_seqs, &kv->setup.T_from) : 0;
    if (T)
        return T;
    kv->setup.T_from = KV_T_DEFAULT;
    return kv_default_T(kv->setup.shape.max_rows);
}

/* Returns r, the rows per growth event: as given by an option, else ceil(N / T). */
static size_t step_rows(struct kv *kv, const struct kv_spec *spec)
{
    const size_t N = kv->setup.shape.max_rows;
    kv->setup.T_from = KV_T_OPTION;
    return spec->r ? size_min(spec->r, N)
                   : div_up(N, size_min(spec->T ? spec->T : choose_T(kv, spec), N));
}

static bool take_T(struct kv_spec *spec, const char *value)
{
    return !spec->r && parse_size(value, &spec->T) && spec->T;
}

static bool take_r(struct kv_spec *spec, const char *value)
{
    return !spec->T && !spec->r && parse_count(value, &spec->r) && spec->r;
}

static bool take_grow(struct kv_spec *spec, const char *value)
{
    spec->grow_now = strcmp(value, "now") == 0;
    return spec->grow_now || strcmp(value, "ahead") == 0;
}

static int parse_steps(struct kv_spec *spec, const char *text, const char *parameter, struct err *err)
{
    static const struct kv_param params[] = {{"T=", take_T}, {"r=", take_r}, {"grow=", take_grow}};
    return kv_parse_params(spec, text, parameter, params, ARRAY_LEN(params),
                           "T=COUNT or r=ROWS is expected after the colon, at least 1, or grow=now or "
                           "grow=ahead, or both with a comma between them",
                           err);
}

const struct kv_growth kv_grow_in_steps = {
    .parse = parse_steps, .rows = step_rows, .r_prefix = "r=", .in_steps = true, .ahead = true};

static bool take_tuned_T(struct kv_spec *spec, const char *value)
{
    spec->tuned = strcmp(value, "tuned") == 0;
    return spec->tuned ? !spec->r : take_T(spec, value);
}

static int parse_segment(struct kv_spec *spec, const char *text, const char *parameter, struct err *err)
{
    static const struct kv_param params[] = {{"step=", take_r}, {"r=", take_r}, {"T=", take_tuned_T}};
    return kv_parse_params(
        spec, text, parameter, params, ARRAY_LEN(params),
        "step=ROWS, r=ROWS, the same, T=COUNT or T=tuned is expected after the colon, at "
        "least 1",
        err);
}

/* Returns r, the rows per growth event, of policy segment: 16 by default, as in the segment paper;
 * with an option as for policy bmc. */
static size_t segment_rows(struct kv *kv, const struct kv_spec *spec)
{
    return spec->T || spec->r || spec->tuned ? step_rows(kv, spec)
                                             : size_min(TILE_ROWS, kv->setup.shape.max_rows);
}

const struct kv_growth kv_grow_in_segments = {
    .parse = parse_segment, .rows = segment_rows, .r_prefix = "step=", .in_steps = true};

enum { MOST_SLACK = 16 }; /* maximum of slack=, in windows */

static bool parse_rows(struct kv_spec *spec, const char *value)
{
    return parse_count(value, &spec->window) && spec->window > 1;
}

static bool parse_slack(struct kv_spec *spec, const char *value)
{
    return parse_double(value, &spec->slack) && spec->slack >= 0 && spec->slack <= MOST_SLACK;
}

static bool parse_sinks(struct kv_spec *spec, const char *value)
{
    return parse_count(value, &spec->sinks);
}

static int parse_window(struct kv_spec *spec, const char *text, const char *parameter, struct err *err)
{
    static const struct kv_param params[] = {
        {"S=", parse_rows}, {"slack=", parse_slack}, {"sinks=", parse_sinks}};
    char expected[192];
    snprintf(
        expected, sizeof expected,
        "S=ROWS, at least 2, sinks=ROWS and slack=PART, from 0 to %d, are expected after the colon, "
        "with commas between them",
        MOST_SLACK);
    return kv_parse_params(spec, text, parameter, params, ARRAY_LEN(params), expected, err);
}

static size_t window_rows(struct kv *kv, const struct kv_spec *spec)
{
    const size_t N = kv->setup.shape.max_rows;
    return size_max(spec->window ? size_min(spec->window, N) : N, 2);
}

const struct kv_growth kv_grow_window = {.parse = parse_window, .rows = window_rows, .r_prefix = "S="};
