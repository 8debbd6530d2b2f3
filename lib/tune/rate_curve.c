/* Rate curves: interpolation and selection. */
#include "tune/rate_curve.h"

#include <math.h>

const char *rate_curve_name(enum curve_what what)
{
    static const char *const name[] = {CURVE_NAMES};
    return name[what];
}

double rate_curve_at(const struct rate_curve *c, double bytes)
{
    size_t i = 0;
    if (bytes <= c->at[0].bytes)
        return c->at[0].value;
    while (i + 1 < c->n && c->at[i + 1].bytes < bytes)
        i++;
    if (i + 1 == c->n)
        return c->at[i].value;
    const struct curve_point *a = &c->at[i], *b = a + 1;
    const double share = log(bytes / a->bytes) / log(b->bytes / a->bytes);
    return a->value * pow(b->value / a->value, share);
}

int rate_curve_check(const struct rate_curve *c, struct err *err)
{
    if (c->n == 0)
        return err_set(err, "constant %s has no points", rate_curve_name(c->what));
    for (size_t i = 0; i < c->n; i++) {
        const struct curve_point *p = &c->at[i];
        if (!(p->bytes > 0 && p->value > 0 && isfinite(p->bytes) && isfinite(p->value)))
            return err_set(err, "constant %s is %g at %g bytes; both must be positive",
                           rate_curve_name(c->what), p->value, p->bytes);
        if (i && !(p->bytes > c->at[i - 1].bytes))
            return err_set(err, "constant %s: sizes must ascend, %g bytes come after %g",
                           rate_curve_name(c->what), p->bytes, c->at[i - 1].bytes);
    }
    return 0;
}

bool rate_curve_same(const struct rate_curve *a, const struct rate_curve *b)
{
    return a->what == b->what && strcmp(a->attn, b->attn) == 0 && a->type == b->type &&
           a->width == b->width && a->group == b->group && a->rows == b->rows && a->batch == b->batch &&
           a->cold == b->cold;
}

static double apart(size_t a, size_t b)
{
    return fabs(log2((double)size_max(a, 1) / (double)size_max(b, 1)));
}

const struct rate_curve *rate_curve_find(const struct rate_curve *curve, size_t n,
                                         const struct rate_curve *like)
{
    const struct rate_curve *best = NULL;
    double best_distance = 0;
    for (size_t i = 0; i < n; i++) {
        const struct rate_curve *c = &curve[i];
        if (c->what != like->what || strcmp(c->attn, like->attn) != 0 || c->type != like->type ||
            c->cold != like->cold)
            continue;
        /* Mismatches, weighted by importance: query positions, GQA group size, batch, width. */
        const double distance = 1000 * apart(c->rows, like->rows) + 100 * apart(c->group, like->group) +
                                10 * apart(c->batch, like->batch) + apart(c->width, like->width);
        if (!best || distance < best_distance) {
            best = c;
            best_distance = distance;
        }
    }
    return best;
}
