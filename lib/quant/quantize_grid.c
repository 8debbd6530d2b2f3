/* The nearest points of a grid.
 *
 * The magnitudes of a grid's points are few, so each value is first rounded to the nearest of them. For every
 * combination of rounded values (a key) a list has the points nearest to it; the weighted error chooses among these.
 * A combination that is itself a point is the best one, as the error is a sum over values. */
#include "quant/quantize_grid.h"

#include <pthread.h>

enum { EIGHT = 8, LEVELS_MOST = 8, KEYS_MOST = 6561, POINTS_MOST = 2048, NEAR = 16 };

typedef float lanes __attribute__((vector_size(16)));
enum { LANES = sizeof(lanes) / sizeof(float) };

struct grid_search {
    const struct quant_grid *grid;
    size_t points, levels;
    float level[LEVELS_MOST]; /* magnitudes, ascending */
    float point[POINTS_MOST][EIGHT];
    uint16_t near[KEYS_MOST][NEAR]; /* nearest first; exact ones are repeated */
};

/* ---- lists of near points ---- */

static size_t power(size_t base, size_t n) { return n ? base * power(base, n - 1) : 1; }

static void add_level(struct grid_search *s, float level)
{
    size_t at = 0;
    while (at < s->levels && s->level[at] < level)
        at++;
    if (at < s->levels && s->level[at] == level)
        return;
    memmove(s->level + at + 1, s->level + at, (s->levels - at) * sizeof *s->level);
    s->level[at] = level;
    s->levels++;
}

/* Lists the points nearest to the combination of levels whose number is `key`. */
static void list_near(struct grid_search *s, size_t key)
{
    float y[EIGHT] = {0}, least[NEAR];
    uint16_t *near = s->near[key];
    size_t n = 0, rest = key;
    for (size_t i = 0; i < s->grid->each; i++, rest /= s->levels)
        y[i] = s->level[rest % s->levels];
    for (size_t p = 0; p < s->points; p++) {
        float error = 0;
        for (size_t i = 0; i < EIGHT; i++)
            error += (y[i] - s->point[p][i]) * (y[i] - s->point[p][i]);
        if (n == NEAR && error >= least[n - 1])
            continue;
        size_t at = n < NEAR ? n++ : n - 1;
        for (; at > 0 && error < least[at - 1]; at--) {
            least[at] = least[at - 1];
            near[at] = near[at - 1];
        }
        least[at] = error;
        near[at] = (uint16_t)p;
    }
    if (least[0] == 0)
        near[1] = near[0];
}

static void prepare(struct grid_search *s, enum dtype type)
{
    const struct quant_grid *grid = s->grid = &quant_types[type].grid;
    s->points = grid_points(grid->bit7, grid->high_bits);
    for (size_t p = 0; p < s->points; p++)
        for (size_t i = 0; i < grid->each; i++) {
            const uint32_t word = grid->points[p * (grid->each / 4u) + i / 4];
            s->point[p][i] = (float)(word >> i % 4 * 8 & 255) - quant_types[type].zero_point;
            add_level(s, s->point[p][i]);
        }
    for (size_t key = 0; key < power(s->levels, grid->each); key++)
        list_near(s, key);
}

static struct grid_search searches[DTYPE_COUNT];
static bool prepared[DTYPE_COUNT];
static pthread_mutex_t preparing = PTHREAD_MUTEX_INITIALIZER;

void grid_prepare(enum dtype type)
{
    pthread_mutex_lock(&preparing);
    if (!prepared[type])
        prepare(&searches[type], type);
    prepared[type] = true;
    pthread_mutex_unlock(&preparing);
}

float grid_highest(enum dtype type)
{
    return searches[type].level[searches[type].levels - 1] + (quant_types[type].grid.delta ? 1 : 0);
}

/* ---- eight values ---- */

/* Values in units of the scale, and weights of their errors; signs are apart but for types with deltas. */
struct eight {
    float y[EIGHT], weight[EIGHT];
    unsigned signs; /* bit i: value i is negative, and y[i] its magnitude */
    int delta;      /* -1 or 1, which is added to every value of a point; 0: none */
    unsigned index[2];
};

static void find_point(const struct grid_search *s, struct eight *e, size_t nth)
{
    const size_t each = s->grid->each;
    const float *y = e->y + nth * each, *weight = e->weight + nth * each;
    size_t key = 0;
    for (size_t i = each; i-- > 0;) {
        size_t level = 0;
        for (size_t l = 1; l < s->levels; l++)
            level += y[i] - (float)e->delta > (s->level[l - 1] + s->level[l]) / 2;
        key = key * s->levels + level;
    }
    const uint16_t *near = s->near[key];
    e->index[nth] = near[0];
    if (near[1] == near[0])
        return;
    float least = INFINITY;
    for (size_t n = 0; n < NEAR; n++) {
        lanes sum = {0}, at, w, p;
        for (size_t i = 0; i < each; i += LANES) {
            memcpy(&at, y + i, sizeof at);
            memcpy(&w, weight + i, sizeof w);
            memcpy(&p, s->point[near[n]] + i, sizeof p);
            const lanes off = at - p - (float)e->delta;
            sum += w * off * off;
        }
        const float error = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        if (error < least) {
            least = error;
            e->index[nth] = near[n];
        }
    }
}

/* Changes the sign whose change costs least, so that an even number is negative. */
static void make_even(struct eight *e)
{
    size_t best = 0;
    for (size_t i = 1; i < EIGHT; i++)
        if (e->weight[i] * e->y[i] * (e->y[i] + 1) < e->weight[best] * e->y[best] * (e->y[best] + 1))
            best = i;
    e->y[best] = -e->y[best];
    e->signs ^= 1u << best;
}

/* Finds the points for inputs [from, from + 8) of a group; inputs after its end are 0 and have no weight. */
static struct eight find_eight(const struct grid_search *s, const struct fit_range *range, size_t from,
                               float inverse, int delta)
{
    struct eight e = {.delta = delta};
    for (size_t i = 0; i < EIGHT && from + i < range->n; i++) {
        e.y[i] = range->x[from + i] * inverse;
        e.weight[i] = range->weight ? range->weight[from + i] : 1;
        if (!delta && e.y[i] < 0) {
            e.y[i] = -e.y[i];
            e.signs |= 1u << i;
        }
    }
    if (!delta && s->grid->bit7 != GRID_BIT_SIGN && __builtin_parity(e.signs))
        make_even(&e);
    for (size_t nth = 0; nth < EIGHT / s->grid->each; nth++)
        find_point(s, &e, nth);
    return e;
}

/* Adds the sums over eight inputs. */
static void add_eight(const struct grid_search *s, const struct fit_range *range, size_t from,
                      float scale, const struct eight *e, struct fit_sums *sums)
{
    for (size_t i = 0; i < EIGHT && from + i < range->n; i++) {
        const float magnitude =
            s->point[e->index[i / s->grid->each]][i % s->grid->each] + (float)e->delta;
        const float c = e->signs >> i & 1 ? -magnitude : magnitude, x = range->x[from + i],
                    w = e->weight[i], off = x - scale * c;
        sums->w += w;
        sums->x += w * x;
        sums->c += w * c;
        sums->cc += w * c * c;
        sums->xc += w * x * c;
        sums->error += w * off * off;
    }
}

/* ---- groups ---- */

static struct fit_sums sums_of(const struct grid_search *s, const struct fit_range *range, size_t from,
                               size_t n, float scale, int delta, struct fit_sums sums)
{
    const float inverse = isfinite(1 / scale) ? 1 / scale : 0;
    for (size_t at = from; at < from + n; at += EIGHT) {
        const struct eight e = find_eight(s, range, at, inverse, delta);
        add_eight(s, range, at, scale, &e, &sums);
    }
    return sums;
}

/* Inputs that share a delta. */
static size_t delta_run(const struct grid_search *s)
{
    return s->grid->delta == GRID_DELTA ? QK_GROUP : EIGHT;
}

/* The better delta of inputs from `from` on; the sums with it are added to *sums. */
static int choose_delta(const struct grid_search *s, const struct fit_range *range, size_t from,
                        float scale, struct fit_sums *sums)
{
    const struct fit_sums more = sums_of(s, range, from, delta_run(s), scale, 1, *sums),
                          less = sums_of(s, range, from, delta_run(s), scale, -1, *sums);
    *sums = less.error < more.error ? less : more;
    return less.error < more.error ? -1 : 1;
}

struct fit_sums grid_measure(const struct fit_range *range, float scale)
{
    const struct grid_search *s = &searches[range->grid_type];
    struct fit_sums sums = {0};
    if (!s->grid->delta)
        return sums_of(s, range, 0, range->n, scale, 0, sums);
    for (size_t from = 0; from < range->n; from += delta_run(s))
        choose_delta(s, range, from, scale, &sums);
    return sums;
}

/* Stores the points and signs of eight inputs in their unit. */
static void store_eight(const struct quant_grid *g, unsigned char *unit, size_t from,
                        const struct eight *e)
{
    unsigned char *signs = unit + grid_signs_at(g);
    for (size_t nth = 0; nth < EIGHT / g->each; nth++) {
        const size_t n = from / g->each + nth, bit = n * g->high_bits;
        const unsigned high = e->index[nth] >> 8;
        unit[n] = (unsigned char)e->index[nth];
        if (g->delta) {
            const unsigned bits = high << grid_delta_high(g, (int)n) |
                                  (e->delta < 0 ? 1u << grid_delta_at(g, (int)n) : 0);
            signs[0] |= (unsigned char)bits;
            signs[1] |= (unsigned char)(bits >> 8);
        } else if (g->high_bits) {
            unit[grid_high_at(g) + bit / 8] |= (unsigned char)(high << bit % 8);
        } else if (g->bit7 == GRID_BIT_INDEX) {
            signs[from / EIGHT] |= (unsigned char)(high << 7);
        }
    }
    if (!g->delta)
        signs[from / EIGHT] |= (unsigned char)(g->bit7 == GRID_BIT_SIGN ? e->signs : e->signs & 127);
}

void grid_store(unsigned char *row, enum dtype type, const struct fit_range *range, float scale,
                size_t at)
{
    const struct grid_search *s = &searches[type];
    const float inverse = isfinite(1 / scale) ? 1 / scale : 0;
    struct fit_sums unused = {0};
    int delta = 0;
    for (size_t from = 0; from < range->n; from += EIGHT) {
        if (s->grid->delta && from % delta_run(s) == 0)
            delta = choose_delta(s, range, from, scale, &unused);
        const struct eight e = find_eight(s, range, from, inverse, delta);
        store_eight(s->grid, row + (at + from) / QK_GROUP * s->grid->unit, (at + from) % QK_GROUP, &e);
    }
}
