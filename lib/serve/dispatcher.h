/* Data parallelism: rank 0 reads requests, one per line, sends each to the rank with the fewest in
 * flight, and writes the results. Every rank runs a worker to serve them, rank 0 in another
 * thread. */
#pragma once

#include "ranks/ranks.h"
#include "serve/rank_counts.h"
#include "serve/serve.h"

struct dispatch {
    struct ranks *ranks;
    size_t slots;              /* maximum requests in flight per rank */
    struct rank_counts counts; /* set by dispatch_lines(): summed over all ranks */
};

/* Serves all requests that are read through `io`. Rank 0 calls this while the others call worker_run(). If the
 * run fails or is interrupted, every request in flight gets a result with the reason; rank 0's
 * worker may then still run, so the process must exit without freeing what `serve` points to. */
int dispatch_lines(struct serve *serve, const struct serve_io *io, struct dispatch *dispatch,
                   struct err *err) MUST_USE;

/* On ranks other than 0: serves requests until the dispatcher sends no more. If it fails, also sends the error to the
 * dispatcher, prefixed with `rank_name`. */
int worker_run(struct serve *serve, struct ranks *ranks, const char *rank_name,
               struct err *err) MUST_USE;
