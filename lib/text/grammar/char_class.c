/* Sets of characters. */
#include "text/grammar/char_class.h"

#include <stdlib.h>
#include <utf8proc.h>

void char_class_add(struct grammar *g, struct char_class *set, uint32_t first, uint32_t last)
{
    if (g->failed)
        return;
    if (mem_grow(&set->range, &set->cap, set->n, sizeof *set->range, &g->why) < 0)
        g->failed = true;
    else
        set->range[set->n++] = (struct code_range){first, last};
}

static int by_first(const void *a, const void *b)
{
    const struct code_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

void char_class_sort(struct char_class *set)
{
    size_t n = 0;
    if (set->n > 1)
        qsort(set->range, set->n, sizeof *set->range, by_first);
    for (size_t i = 0; i < set->n; i++)
        if (n && set->range[i].first <= set->range[n - 1].last + 1) {
            if (set->range[i].last > set->range[n - 1].last)
                set->range[n - 1].last = set->range[i].last;
        } else {
            set->range[n++] = set->range[i];
        }
    set->n = n;
}

void char_class_negate(struct grammar *g, struct char_class *set)
{
    struct char_class rest = {0};
    uint32_t from = 0;
    char_class_sort(set);
    for (size_t i = 0; i < set->n; i++) {
        if (set->range[i].first > from)
            char_class_add(g, &rest, from, set->range[i].first - 1);
        from = set->range[i].last + 1;
    }
    if (from <= CODE_MAX)
        char_class_add(g, &rest, from, CODE_MAX);
    char_class_release(set);
    *set = rest;
}

bool char_class_has(const struct char_class *set, uint32_t code)
{
    size_t lo = 0, hi = set->n;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (set->range[mid].last < code)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < set->n && set->range[lo].first <= code;
}

void char_class_release(struct char_class *set)
{
    free(set->range);
    *set = (struct char_class){0};
}

/* Adds all decimal digits of Unicode. */
static void add_digits(struct grammar *g, struct char_class *set)
{
    for (uint32_t code = 0x80; code < 0x20000; code++)
        if (utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ND)
            char_class_add(g, set, code, code);
}

void char_class_add_shorthand(struct grammar *g, struct char_class *set, char letter, bool wide)
{
    static const struct code_range spaces[] = {{0x1c, 0x1f},     {0x85, 0x85},     {0xa0, 0xa0},
                                               {0x1680, 0x1680}, {0x180e, 0x180e}, {0x2000, 0x200b},
                                               {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                               {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    switch (letter) {
    case 's':
        char_class_add(g, set, '\t', '\r');
        char_class_add(g, set, ' ', ' ');
        for (size_t i = 0; i < ARRAY_LEN(spaces) && wide; i++)
            char_class_add(g, set, spaces[i].first, spaces[i].last);
        break;
    case 'w':
        char_class_add(g, set, '0', '9');
        char_class_add(g, set, 'A', 'Z');
        char_class_add(g, set, '_', '_');
        char_class_add(g, set, 'a', 'z');
        if (wide)
            char_class_add(g, set, 0x80, CODE_MAX); /* dialects differ too much */
        break;
    default:
        char_class_add(g, set, '0', '9');
        if (wide)
            add_digits(g, set);
        break;
    }
}
