/* Receiving messages of a known size, for all drivers of ranks. */
#include "ranks/ranks.h"

#include <dlfcn.h>

#include "base/mem.h"

int ranks_take(struct ranks *ranks, int from, int tag, void *data, size_t bytes, struct err *err)
{
    size_t received;
    if (ranks->ops->receive(ranks, data, bytes, &from, &tag, &received, err) < 0)
        return -1;
    return received == bytes
               ? 0
               : err_set(err, "rank %d sent %zu bytes, %zu are expected", from, received, bytes);
}

/* ---- the driver library, and agreement of all ranks on their settings ---- */

struct opened {
    struct ranks ranks; /* first, so that a pointer to it can be cast back */
    const struct ranks_driver *driver;
};

static const struct ranks_driver *load_driver(const char *library, struct err *err)
{
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    const struct ranks_driver *driver = loaded ? dlsym(loaded, RANKS_DRIVER) : NULL;
    if (driver && driver->ranks_bytes == sizeof(struct ranks) &&
        driver->ops_bytes == sizeof(struct ranks_ops))
        return driver;
    const char *why = loaded ? "it was built for another version" : dlerror();
    err_set(
        err,
        "the MPI library of ranks cannot be loaded (%s); \"make deps-mpi mpi\" installs and builds it",
        why ? why : library);
    return NULL;
}

int ranks_open(struct ranks **ranks, const char *library, struct err *err)
{
    struct opened *opened = calloc(1, sizeof *opened);
    *ranks = NULL;
    if (!opened)
        return err_no_memory(err, "ranks");
    if (!(opened->driver = load_driver(library, err)) ||
        opened->driver->open(&opened->ranks, err) < 0) {
        free(opened);
        return -1;
    }
    *ranks = &opened->ranks;
    return 0;
}

void ranks_close(struct ranks *ranks)
{
    AUTO(free_auto) struct opened *opened = (struct opened *)ranks;
    if (opened)
        opened->driver->close(ranks);
}

static size_t line_bytes(const char *text) { return strcspn(text, "\n"); }

/* Advances both texts to the first line in which they differ; false: they are equal. */
static bool lines_differ(const char **a, const char **b)
{
    while (**a || **b) {
        const size_t n = line_bytes(*a);
        if (n != line_bytes(*b) || memcmp(*a, *b, n) != 0)
            return true;
        *a += n + ((*a)[n] != 0);
        *b += n + ((*b)[n] != 0);
    }
    return false;
}

/* Number of bytes of a line to show in messages, at most 120. */
static int shown_bytes(const char *line) { return (int)size_min(line_bytes(line), 120); }

static void compare_with_first(const char *name, const char *mine, const char *first,
                               struct err *verdict)
{
    verdict->text[0] = 0;
    if (lines_differ(&mine, &first))
        err_set(verdict, "%s differs from rank 0: it has \"%.*s\", and rank 0 \"%.*s\"", name,
                shown_bytes(mine), mine, shown_bytes(first), first);
}

/* Collective: sets *first on all ranks to a copy of rank 0's text, which the caller frees. */
static int broadcast_first(struct ranks *ranks, const char *text, char **first, struct err *err)
{
    uint64_t bytes = strlen(text) + 1;
    if (ranks->ops->broadcast(ranks, &bytes, sizeof bytes, 0, err) < 0)
        return -1;
    if (!(*first = mem_alloc(bytes, 1)))
        return err_no_memory(err, "the text of rank 0");
    if (ranks->rank == 0)
        memcpy(*first, text, bytes);
    return ranks->ops->broadcast(ranks, *first, bytes, 0, err);
}

/* All-gathers every rank's error `mine`; sets `err` to the first that is not empty. */
static int gather_verdicts(struct ranks *ranks, const struct err *mine, struct err *err)
{
    const size_t n = (size_t)ranks->size;
    struct err *verdict = mem_alloc(n, sizeof *verdict);
    size_t *bytes = mem_alloc(n, sizeof *bytes);
    int rc = -1;
    if (!verdict || !bytes) {
        err_no_memory(err, "%zu ranks", n);
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        bytes[i] = sizeof *verdict;
    verdict[ranks->rank] = *mine;
    if ((rc = ranks->ops->gather(ranks, verdict, bytes, err)) < 0)
        goto out;
    for (size_t i = 0; i < n && rc == 0; i++)
        if (verdict[i].text[0])
            rc = err_set(err, "%.*s", (int)sizeof verdict->text - 1, verdict[i].text);
out:
    free(bytes);
    free(verdict);
    return rc;
}

int ranks_agree(struct ranks *ranks, const char *name, const char *text, struct err *err)
{
    struct err verdict;
    AUTO(free_auto) char *first = NULL;
    int rc = broadcast_first(ranks, text, &first, err);
    if (rc == 0) {
        compare_with_first(name, text, first, &verdict);
        rc = gather_verdicts(ranks, &verdict, err);
    }
    return rc;
}
