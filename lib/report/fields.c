/* Makes result rows from records. */
#include "report/fields.h"

#include "report/stat.h"

static json_t *real_or_null(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *member_value(enum field_kind kind, const void *at)
{
    switch (kind) {
    case FIELD_TEXT: {
        const char *text = *(const char *const *)at;
        return text ? json_text(text, strlen(text)) : json_null();
    }
    case FIELD_BOOL: return json_boolean(*(const bool *)at);
    case FIELD_INT: return json_integer(*(const int *)at);
    case FIELD_SIZE: {
        const size_t size = *(const size_t *)at;
        return size == SIZE_MAX ? json_null() : json_integer((json_int_t)size);
    }
    case FIELD_COUNT: {
        const int64_t count = *(const int64_t *)at;
        return count < 0 ? json_null() : json_integer(count);
    }
    case FIELD_WHOLE: return json_whole(*(const uint64_t *)at);
    case FIELD_BYTES: {
        const double bytes = *(const double *)at;
        return fabs(bytes) < 0x1p53 ? json_integer((json_int_t)bytes) : real_or_null(bytes);
    }
    case FIELD_REAL:
    case FIELD_NAME: break;
    }
    return real_or_null(*(const double *)at);
}

static double number_at(enum field_kind kind, const void *at)
{
    return kind == FIELD_SIZE ? (double)*(const size_t *)at : *(const double *)at;
}

/* The statistic of a member over all rounds. */
static json_t *stat_value(const struct row_field *field, const char *member, size_t rounds, size_t size)
{
    double *x = mem_alloc(rounds, sizeof *x), value = NAN;
    if (!x)
        return NULL;
    for (size_t i = 0; i < rounds; i++)
        x[i] = number_at(field->kind, member + i * size);
    switch (field->stat) {
    case FIELD_LAST: break;
    case FIELD_MEDIAN: value = stat_quantile(x, rounds, 0.5); break;
    case FIELD_MEAN: value = stat_mean(x, rounds); break;
    case FIELD_SD: value = stat_sd(x, rounds); break;
    case FIELD_MIN: value = stat_quantile(x, rounds, 0); break;
    case FIELD_MAX: value = stat_quantile(x, rounds, 1); break;
    }
    free(x);
    return field->kind == FIELD_SIZE ? json_integer((json_int_t)value) : real_or_null(value);
}

int fields_put(json_t *row, const struct row_field *fields, unsigned flags, const void *record,
               size_t rounds, size_t size, struct err *err)
{
    int rc = row ? 0 : err_no_memory(err, "a row");
    for (const struct row_field *f = fields; rc == 0 && f->name; f++) {
        const char *member = (const char *)record + f->at;
        if ((flags != FIELD_ALL && !(f->flags & flags)) || f->kind == FIELD_NAME)
            continue;
        rc = json_put(row, f->name,
                      f->stat == FIELD_LAST ? member_value(f->kind, member + (rounds - 1) * size)
                                            : stat_value(f, member, rounds, size),
                      err);
    }
    return rc;
}

int fields_put_samples(json_t *row, const struct row_field *fields, const void *record, size_t rounds,
                       size_t size, struct err *err)
{
    AUTO(json_auto) json_t *samples = json_object();
    int rc = samples ? 0 : err_no_memory(err, "a row");
    for (const struct row_field *f = fields; rc == 0 && f->name; f++) {
        json_t *list = f->flags & FIELD_SAMPLES ? json_array() : NULL;
        if (!(f->flags & FIELD_SAMPLES))
            continue;
        for (size_t i = 0; rc == 0 && i < rounds; i++)
            rc = json_push(
                list, real_or_null(number_at(f->kind, (const char *)record + f->at + i * size)), err);
        if (rc == 0)
            rc = json_put(samples, f->name, json_incref(list), err);
        json_decref(list);
    }
    return rc < 0 ? -1 : json_put(row, "samples", json_incref(samples), err);
}

const struct row_field *field_find(const struct row_field *fields, const char *text, size_t len)
{
    for (const struct row_field *f = fields; f->name; f++)
        if (strncmp(f->name, text, len) == 0 && !f->name[len])
            return f;
    return NULL;
}

int fields_end(int rc, json_t *row, json_t *rows, struct err *err)
{
    if (rc == 0)
        return json_push(rows, row, err);
    json_decref(row);
    return rc;
}
