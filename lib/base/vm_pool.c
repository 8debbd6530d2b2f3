/* Blocks that share huge pages. Regions of address space, each with its free spans in the order of addresses: a block
 * takes the first one that is large enough, and joins its neighbours again when it is freed. */
#include "base/vm_pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/vm.h"

enum { REGION_BYTES = 64 << 20, GRAIN = 4096 };

struct span {
    size_t at, bytes;
};

struct region {
    struct region *next;
    char *base;
    size_t bytes, blocks; /* blocks that are not freed */
    struct span *free;    /* [n], room for blocks + 1: freeing allocates nothing */
    size_t n, room;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region *regions;
static bool saving; /* all freed pages return to the system at once */
static size_t kept,
    largest; /* about the bytes that freed blocks have kept, and of the largest one of them */

static struct region *region_open(size_t bytes)
{
    struct region *r = mem_zalloc(1, sizeof *r);
    struct span *spans = mem_alloc(2, sizeof *spans);
    char *base = r && spans ? vm_reserve(VM_THP, bytes) : NULL;
    if (!base) {
        free(r);
        free(spans);
        return NULL;
    }
    spans[0] = (struct span){0, bytes};
    *r = (struct region){regions, base, bytes, 0, spans, 1, 2};
    return regions = r;
}

static void region_close(struct region *r)
{
    struct region **link = &regions;
    while (*link != r)
        link = &(*link)->next;
    *link = r->next;
    vm_release(r->base, r->bytes);
    free(r->free);
    free(r);
}

/* Makes room for the spans that freeing all blocks and one more can leave. */
static bool reserve_spans(struct region *r)
{
    if (r->blocks + 2 <= r->room)
        return true;
    struct span *more = mem_alloc(2 * r->room, sizeof *more);
    if (!more)
        return false;
    memcpy(more, r->free, r->n * sizeof *more);
    free(r->free);
    r->free = more;
    r->room *= 2;
    return true;
}

static void *take(struct region *r, size_t bytes)
{
    size_t i = 0;
    while (i < r->n && r->free[i].bytes < bytes)
        i++;
    if (i == r->n || !reserve_spans(r))
        return NULL;
    struct span *span = &r->free[i];
    char *block = r->base + span->at;
    span->at += bytes;
    span->bytes -= bytes;
    if (!span->bytes)
        memmove(span, span + 1, (--r->n - i) * sizeof *span);
    r->blocks++;
    kept -= size_min(kept, bytes);
    return block;
}

void *pool_get(size_t bytes)
{
    void *block = NULL;
    bytes = round_up(bytes, GRAIN);
    pthread_mutex_lock(&lock);
    for (struct region *r = regions; r && !block; r = r->next)
        block = take(r, bytes);
    if (!block && region_open(size_max(bytes, REGION_BYTES)))
        block = take(regions, bytes);
    pthread_mutex_unlock(&lock);
    return block;
}

/* Adds [at, at + bytes) to the free spans of a region, and returns the one that it is part of. */
static struct span give(struct region *r, size_t at, size_t bytes)
{
    size_t i = 0;
    while (i < r->n && r->free[i].at < at)
        i++;
    struct span *after = i < r->n && at + bytes == r->free[i].at ? &r->free[i] : NULL;
    struct span *before = i && r->free[i - 1].at + r->free[i - 1].bytes == at ? &r->free[i - 1] : NULL;
    if (before && after) {
        before->bytes += bytes + after->bytes;
        memmove(after, after + 1, (--r->n - i) * sizeof *after);
    } else if (before) {
        before->bytes += bytes;
    } else if (after) {
        *after = (struct span){at, after->bytes + bytes};
    } else {
        memmove(r->free + i + 1, r->free + i, (r->n++ - i) * sizeof *r->free);
        r->free[i] = (struct span){at, bytes};
    }
    r->blocks--;
    return before ? *before : r->free[i];
}

/* Returns memory of a freed block: all of it, or the huge pages that are free as a whole, so that others stay huge. */
static void drop(const struct region *r, struct span block, struct span whole)
{
    size_t from = block.at, to = block.at + block.bytes;
    if (!saving) {
        from = size_max(from / HUGE_PAGE * HUGE_PAGE, round_up(whole.at, HUGE_PAGE));
        to = size_min(round_up(to, HUGE_PAGE), (whole.at + whole.bytes) / HUGE_PAGE * HUGE_PAGE);
    }
    if (from < to)
        vm_drop(r->base + from, to - from);
}

void pool_free(void *block, size_t bytes)
{
    bytes = round_up(bytes, GRAIN);
    pthread_mutex_lock(&lock);
    struct region *r = regions;
    while ((uintptr_t)block - (uintptr_t)r->base >= r->bytes)
        r = r->next;
    const struct span freed = {(size_t)((char *)block - r->base), bytes},
                      whole = give(r, freed.at, bytes);
    largest = size_max(largest, bytes);
    kept += bytes;
    if (saving || kept > largest) {
        drop(r, freed, whole);
        kept -= bytes;
    }
    if (!r->blocks && (saving || r->next || r != regions))
        region_close(r);
    pthread_mutex_unlock(&lock);
}

void pool_trim(void)
{
    pthread_mutex_lock(&lock);
    saving = true;
    for (struct region *r = regions, *next; r; r = next) {
        next = r->next;
        for (size_t i = 0; i < r->n; i++)
            vm_drop(r->base + r->free[i].at, r->free[i].bytes);
        if (!r->blocks)
            region_close(r);
    }
    pthread_mutex_unlock(&lock);
}
