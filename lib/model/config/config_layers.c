/* Values that differ by layer, as text: "sliding*5 full ..." */
#include "model/config/config_keys.h"

#include "base/number.h"

/* Shortens a list to its smallest period. */
static void shorten(struct layer_list *list)
{
    for (size_t period = 1; period < list->n; period++) {
        size_t i = period;
        while (i < list->n && list->value[i] == list->value[i - period])
            i++;
        if (i == list->n)
            list->n = period;
    }
}

static bool parse_number(const char *text, size_t len, size_t *value)
{
    char number[32];
    if (len == 0 || len >= sizeof number)
        return false;
    memcpy(number, text, len);
    number[len] = 0;
    return parse_size(number, value);
}

/* Parses NAME or NAME*COUNT. */
static bool parse_run(const char *text, size_t len, const struct layer_words *words, uint16_t *value,
                      size_t *count)
{
    const char *star = memchr(text, '*', len);
    const size_t name_len = star ? (size_t)(star - text) : len;
    *count = 1;
    if (star && (!parse_number(star + 1, len - name_len - 1, count) || *count == 0))
        return false;
    if (!words->names) {
        size_t number;
        const bool ok =
            parse_number(text, name_len, &number) && number >= words->min && number <= words->max;
        *value = ok ? (uint16_t)number : 0;
        return ok;
    }
    for (size_t i = 0; words->names[i]; i++)
        if (strlen(words->names[i]) == name_len && memcmp(words->names[i], text, name_len) == 0) {
            *value = (uint16_t)(words->alias ? words->alias[i] : (int)i);
            return true;
        }
    return false;
}

static int refuse_run(const struct layer_words *words, const char *text, size_t len, size_t layer,
                      const char *name, struct err *err)
{
    const int shown = len > 40 ? 40 : (int)len;
    if (words->names)
        return err_set(err, "%s: \"%s\" is %.*s for layer %zu; bmc-family(5) lists known kinds", name,
                       words->key, shown, text, layer);
    return err_set(err, "%s: \"%s\" is %.*s for layer %zu, expected a number from %zu to %zu", name,
                   words->key, shown, text, layer, words->min, words->max);
}

int config_read_layers(struct layer_list *list, const char *text, const struct layer_words *words,
                       size_t layers, const char *name, struct err *err)
{
    static const char between[] = " \t,";
    bool repeats = false;
    *list = (struct layer_list){0};
    if (strcmp(text, "none") == 0)
        return 0;
    for (size_t len; *(text += strspn(text, between)); text += len) {
        uint16_t value = 0;
        size_t count = 0;
        len = strcspn(text, between);
        if (len == 3 && memcmp(text, "...", 3) == 0 && list->n && !text[len]) {
            repeats = true;
            continue;
        }
        if (!parse_run(text, len, words, &value, &count))
            return refuse_run(words, text, len, list->n, name, err);
        if (count > layers - list->n)
            return err_set(err, "%s: \"%s\" has more than %zu entries for %zu layers", name, words->key,
                           layers, layers);
        for (const size_t end = list->n + count; list->n < end;)
            list->value[list->n++] = value;
    }
    if (list->n != layers && !repeats)
        return err_set(err, "%s: \"%s\" has %zu entries for %zu layers", name, words->key, list->n,
                       layers);
    for (size_t i = list->n; i < layers; i++)
        list->value[i] = list->value[i - list->n];
    list->n = layers;
    shorten(list);
    return 0;
}

static int write_value(const struct layer_words *words, uint16_t value, struct buf *text,
                       struct err *err)
{
    size_t i = 0;
    if (!words->names)
        return buf_addf(text, err, " %u", value);
    while (words->alias && words->alias[i] != (int)value)
        i++;
    return buf_addf(text, err, " %s", words->names[words->alias ? i : value]);
}

int config_write_layers(const struct layer_list *list, const struct layer_words *words, size_t layers,
                        struct buf *text, struct err *err)
{
    int rc = buf_addf(text, err, list->n ? "%s" : "%s none", words->key);
    for (size_t i = 0, run; i < list->n && rc == 0; i += run) {
        for (run = 1; i + run < list->n && list->value[i + run] == list->value[i];)
            run++;
        rc = write_value(words, list->value[i], text, err);
        if (rc == 0 && run > 1)
            rc = buf_addf(text, err, "*%zu", run);
    }
    return rc < 0 ? -1 : buf_addf(text, err, "%s\n", list->n && list->n < layers ? " ..." : "");
}
