/* Arena, limits and errors of the template interpreter. */
#include "text/jinja_values/jinja_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { CHUNK_BYTES = 1 << 16, ALIGN = 16 };

struct jinja_chunk {
    struct jinja_chunk *next;
    size_t size;
    _Alignas(ALIGN) char bytes[];
};

/* Line and column, from 1, of offset `pos`; columns count characters. */
static void place_of(const struct jinja_state *j, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < j->pos && i < j->source_len; i++) {
        const unsigned char c = (unsigned char)j->source[i];
        if (c == '\n') {
            ++*line;
            *column = 1;
        } else if ((c & 0xC0) != 0x80) {
            ++*column;
        }
    }
}

void jinja_fail(struct jinja_state *j, const char *format, ...)
{
    char what[sizeof j->err->text];
    size_t line, column;
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    text_make_printable(what, strlen(what), "");
    place_of(j, &line, &column);
    (void)err_set(j->err, "%s: line %zu, column %zu: %.*s", j->name, line, column,
                  (int)sizeof what / 4 * 3, what);
    longjmp(j->way_out, 1);
}

void *jinja_alloc(struct jinja_state *j, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > j->most_memory - j->used)
        jinja_fail(j, "the template needs more than %zu MB of memory", j->most_memory >> 20);
    bytes = bytes ? (bytes + ALIGN - 1) / ALIGN * ALIGN : ALIGN;
    if (bytes > j->left) {
        const size_t room = bytes > CHUNK_BYTES / 4 ? bytes : CHUNK_BYTES;
        struct jinja_chunk *chunk = malloc(sizeof *chunk + room);
        if (!chunk) {
            err_no_memory(j->err, "%s", j->name);
            longjmp(j->way_out, 1);
        }
        chunk->size = room;
        if (room == bytes && j->chunk) { /* the newest one keeps its free bytes */
            chunk->next = j->chunk->next;
            j->chunk->next = chunk;
            j->used += j->used + bytes > j->most_memory ? j->most_memory - j->used : bytes;
            return chunk->bytes;
        }
        chunk->next = j->chunk;
        j->chunk = chunk;
        j->left = room;
    }
    void *at = j->chunk->bytes + j->chunk->size - j->left;
    j->left -= bytes;
    j->used += size_min(bytes, j->most_memory - j->used);
    return at;
}

void *jinja_zalloc(struct jinja_state *j, size_t count, size_t size)
{
    void *at = jinja_alloc(j, count, size);
    memset(at, 0, count * size);
    return at;
}

void jinja_touch(struct jinja_state *j, size_t sixteenths)
{
    if (__builtin_add_overflow(j->work, sixteenths, &j->work))
        j->work = UINT64_MAX;
    if (j->work > j->most_work)
        jinja_fail(j, "the template takes more than %llu steps",
                   (unsigned long long)j->most_work / JINJA_STEP);
}

void jinja_enter(struct jinja_state *j)
{
    if (j->depth >= j->most_depth)
        jinja_fail(j, "nested deeper than %u levels", j->most_depth);
    j->depth++;
}

void *jinja_grow(struct jinja_state *j, void *array, size_t *cap, size_t used, size_t size)
{
    if (used < *cap)
        return array;
    const size_t more = *cap ? 2 * *cap : 4;
    void *copy = jinja_alloc(j, more, size);
    if (used)
        memcpy(copy, array, used * size);
    *cap = more;
    return copy;
}

void jinja_state_release(struct jinja_state *j)
{
    while (j->chunk) {
        struct jinja_chunk *next = j->chunk->next;
        free(j->chunk);
        j->chunk = next;
    }
}
