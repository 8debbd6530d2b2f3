/* Blocks that share huge pages. Regions of address space, each with its free spans in the order of addresses: a block
 * takes the first one that is large enough, and joins its neighbours again when it is freed. */
#include "base/vm_pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "base/vm_map.h"

/* Freed blocks keep KEPT_MOST bytes: the cache of a short request, for the next one. */
enum { REGION_BYTES = 2 * POOL_MOST, GRAIN = 4096, KEPT_MOST = 64 << 20 };

struct free_span {
    size_t at, bytes, kept; /* kept: about the bytes that have memory */
};

struct region {
    struct region *next;
    char *base;
    size_t blocks;          /* that are not freed */
    struct free_span *free; /* [n], room for blocks + 1: freeing allocates nothing */
    size_t n, room;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region *regions;
static bool saving; /* all freed pages return to the system at once */
static size_t kept; /* bytes that free spans have kept */

static struct region *region_open(void)
{
    struct region *r = mem_zalloc(1, sizeof *r);
    struct free_span *spans = mem_alloc(2, sizeof *spans);
    char *base = r && spans ? vm_map(VM_THP, REGION_BYTES, MAP_NORESERVE) : NULL;
    if (!base) {
        free(r);
        free(spans);
        return NULL;
    }
    spans[0] = (struct free_span){0, REGION_BYTES, 0};
    *r = (struct region){regions, base, 0, spans, 1, 2};
    return regions = r;
}

static void region_close(struct region *r)
{
    struct region **link = &regions;
    while (*link != r)
        link = &(*link)->next;
    *link = r->next;
    kept -= r->free[0].kept;
    vm_release(r->base, REGION_BYTES);
    free(r->free);
    free(r);
}

/* Makes room for the spans that freeing all blocks and one more can leave. */
static bool reserve_spans(struct region *r)
{
    if (r->blocks + 2 <= r->room)
        return true;
    struct free_span *more = mem_alloc(2 * r->room, sizeof *more);
    if (!more)
        return false;
    memcpy(more, r->free, r->n * sizeof *more);
    free(r->free);
    r->free = more;
    r->room *= 2;
    return true;
}

/* Bytes of a free span are used or dropped. */
static void forget(struct free_span *span, size_t bytes)
{
    const size_t less = size_min(span->kept, bytes);
    span->kept -= less;
    kept -= less;
}

static void *take(struct region *r, size_t bytes)
{
    size_t i = 0;
    while (i < r->n && r->free[i].bytes < bytes)
        i++;
    if (i == r->n || !reserve_spans(r))
        return NULL;
    struct free_span *span = &r->free[i];
    char *block = r->base + span->at;
    forget(span, bytes);
    span->at += bytes;
    span->bytes -= bytes;
    if (!span->bytes)
        memmove(span, span + 1, (--r->n - i) * sizeof *span);
    r->blocks++;
    return block;
}

void *pool_get(size_t bytes)
{
    void *block = NULL;
    bytes = round_up(bytes, GRAIN);
    pthread_mutex_lock(&lock);
    for (struct region *r = regions; r && !block; r = r->next)
        block = take(r, bytes);
    if (!block && region_open())
        block = take(regions, bytes);
    pthread_mutex_unlock(&lock);
    return block;
}

/* Adds [at, at + bytes) to the free spans of a region, and returns the one that it is part of. */
static struct free_span *give(struct region *r, size_t at, size_t bytes)
{
    size_t i = 0;
    while (i < r->n && r->free[i].at < at)
        i++;
    if (i && r->free[i - 1].at + r->free[i - 1].bytes == at) {
        i--;
    } else {
        memmove(r->free + i + 1, r->free + i, (r->n++ - i) * sizeof *r->free);
        r->free[i] = (struct free_span){at, 0, 0};
    }
    struct free_span *span = &r->free[i], *after = span + 1;
    span->bytes += bytes;
    span->kept += bytes;
    kept += bytes;
    if (i + 1 < r->n && span->at + span->bytes == after->at) {
        span->bytes += after->bytes;
        span->kept += after->kept;
        memmove(after, after + 1, (--r->n - i - 1) * sizeof *after);
    }
    r->blocks--;
    return span;
}

/* Returns memory of [from, to) of a free span: all of it, or the huge pages that are free as a whole, so that others stay
 * huge. */
static void drop(const struct region *r, struct free_span *span, size_t from, size_t to)
{
    if (!saving) {
        from = size_max(from / HUGE_PAGE * HUGE_PAGE, round_up(span->at, HUGE_PAGE));
        to = size_min(round_up(to, HUGE_PAGE), (span->at + span->bytes) / HUGE_PAGE * HUGE_PAGE);
    }
    if (from >= to)
        return;
    vm_drop(r->base + from, to - from);
    forget(span, to - from);
}

void pool_free(void *block, size_t bytes)
{
    bytes = round_up(bytes, GRAIN);
    pthread_mutex_lock(&lock);
    struct region *r = regions;
    while ((uintptr_t)block - (uintptr_t)r->base >= REGION_BYTES)
        r = r->next;
    const size_t at = (size_t)((char *)block - r->base);
    struct free_span *span = give(r, at, bytes);
    const bool enough = saving || kept > KEPT_MOST;
    if (enough)
        drop(r, span, at, at + bytes);
    if (enough && !r->blocks)
        region_close(r);
    pthread_mutex_unlock(&lock);
}

void pool_trim(bool for_good)
{
    pthread_mutex_lock(&lock);
    saving |= for_good;
    for (struct region *r = regions, *next; r; r = next) {
        next = r->next;
        for (size_t i = 0; i < r->n; i++)
            drop(r, &r->free[i], r->free[i].at, r->free[i].at + r->free[i].bytes);
        if (!r->blocks)
            region_close(r);
    }
    pthread_mutex_unlock(&lock);
}
