/* State of parsing or rendering a Jinja template: an arena, limits, and the way out on errors.
 *
 * All memory of a template or of a rendering is in one arena, which is released as a whole. Errors
 * leave by longjmp() to the entry point: expressions are evaluated by functions that return values,
 * and nothing but the arena needs cleaning up. */
#ifndef BMC_JINJA_STATE_H
#define BMC_JINJA_STATE_H

#include <setjmp.h>
#include <time.h>

#include "base/err.h"

struct jinja_state {
    struct jinja_chunk *chunk;  /* of the arena, newest first */
    size_t left;                /* bytes left in the newest chunk */
    size_t used, most_memory;   /* bytes allocated, and their limit */
    uint64_t work, most_work;   /* sixteenths of steps */
    unsigned depth, most_depth; /* of nested expressions, statements and values */
    const char *name;           /* of the template, for errors */
    const char *source;         /* its text */
    size_t source_len;
    size_t pos;      /* offset in the source of what is being parsed or evaluated */
    struct tm now;   /* for strftime_now() */
    struct err *err; /* where an error goes */
    jmp_buf way_out; /* set by the entry point */
};

/* Ends parsing or rendering with a sentence, which names the template, line and column. */
_Noreturn void jinja_fail(struct jinja_state *j, const char *format, ...) PRINTF_LIKE(2, 3);

/* Allocates count * size bytes in the arena, 16-byte aligned, not cleared. Never NULL. */
void *jinja_alloc(struct jinja_state *j, size_t count, size_t size);

/* Allocates cleared memory. */
void *jinja_zalloc(struct jinja_state *j, size_t count, size_t size);

/* Work is counted where it is done, so that the limit of steps bounds the time that a template takes, whatever
 * it does: a step for what is evaluated or called, a sixteenth for each byte or item that a function looks at,
 * several if it does more with them. What allocates memory is bounded by the limit of memory, too. */
enum { JINJA_STEP = 16 };
void jinja_touch(struct jinja_state *j, size_t sixteenths);
static inline void jinja_work(struct jinja_state *j, size_t steps)
{
    jinja_touch(j, steps > SIZE_MAX / JINJA_STEP ? SIZE_MAX : steps * JINJA_STEP);
}

/* Enter and leave a level of nesting. */
void jinja_enter(struct jinja_state *j);
static inline void jinja_leave(struct jinja_state *j) { j->depth--; }

/* Grows an array of the arena that has `used` of *cap elements, to hold one more. */
void *jinja_grow(struct jinja_state *j, void *array, size_t *cap, size_t used, size_t size);

void jinja_state_release(struct jinja_state *j);

#endif
