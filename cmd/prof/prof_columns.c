/* --columns: selects the fields that tables show; unknown names are rejected before measuring. */
#include <stdlib.h>
#include <string.h>

#include "prof/prof.h"

/* Length of the first name in a comma-separated list if it is a field of `latency` such as
 * POLICY_p95_ms, else 0. It is compared with known names since policies may contain commas. */
static size_t policy_field(const char *list, const struct prof *prof)
{
    static const char *const ends[] = {"_ms", "_p95_ms", "_max_ms"};
    size_t found = 0;
    for (size_t i = 0; prof && i < prof->n_contenders; i++)
        for (size_t k = 0; k < ARRAY_LEN(ends); k++) {
            char name[PROF_FIELD_BYTES];
            snprintf(name, sizeof name, "%s%s", prof->contender[i].text, ends[k]);
            found = size_max(found, prof_known_field(list, name));
        }
    return found;
}

__attribute__((noreturn)) static void refuse(const char *at, enum prof_command command)
{
    struct buf names = {0};
    struct err err;
    for (const char *field = prof_fields[command]; *field; field += strspn(field, " ")) {
        const size_t len = strcspn(field, " ");
        (void)!buf_addf(&names, &err, ", %.*s", (int)len, field); /* too long a list is truncated */
        field += len;
    }
    opt_usage_error(&prof_program, "--columns: \"%.*s\" is not a field of %s; known are all%s%s",
                    (int)strcspn(at, ","), at, prof_command_names[command], buf_text(&names),
                    command == PROF_LATENCY
                        ? ", and for each policy POLICY_ms, POLICY_p95_ms and POLICY_max_ms"
                        : "");
}

void prof_check_columns(const struct prof_options *o, const struct prof *prof)
{
    if (!o->columns)
        return;
    if (o->format == TABLE_JSON || o->format == TABLE_JSONL)
        opt_usage_error(&prof_program, "--columns: JSON has all fields: choose table, md or csv");
    for (const char *at = o->columns;; at++) {
        const size_t len =
            size_max(prof_known_field(at, prof_fields[o->command]), policy_field(at, prof));
        /* names of policies are checked once those are known */
        if (!len && strcmp(o->columns, "all") != 0 && (prof || o->command != PROF_LATENCY))
            refuse(at, o->command);
        at += len ? len : strcspn(at, ",");
        if (!*at)
            return;
    }
}

int prof_choose_columns(const struct prof *prof, const struct prof_options *o, const json_t *rows,
                        const char *usual, struct buf *text, struct err *err)
{
    size_t len;
    if (!o->columns)
        return buf_addf(text, err, "%s", usual);
    if (strcmp(o->columns, "all") == 0) {
        json_t *row = json_array_get(rows, 0), *value;
        const char *key;
        json_object_foreach(row, key, value)
        {
            if (buf_addf(text, err, "%s%s", text->len ? " " : "", key) < 0)
                return -1;
        }
        return 0;
    }
    for (const char *at = o->columns; *at; at += len + (at[len] == ',')) {
        len = size_max(prof_known_field(at, prof_fields[o->command]), policy_field(at, prof));
        if (buf_addf(text, err, "%s%.*s", text->len ? " " : "", (int)len, at) < 0)
            return -1;
    }
    return 0;
}
