/* Data parallelism: rank 0 reads requests, one per line, sends each to the rank with the fewest in
 * flight, and writes the results. Every rank runs a worker to serve them, rank 0 in another
 * thread. */
#ifndef BMC_DISPATCHER_H
#define BMC_DISPATCHER_H

#include "serve/lines/lines.h"
#include "serve/ordered_results.h"
#include "serve/rank_counts.h"
#include "serve/serve.h"

struct dispatch {
    struct ranks *ranks;
    size_t slots;        /* maximum requests in flight per rank */
    struct lines *lines; /* the input, a request per line */
    struct results *results;
    /* Set by dispatch_lines(): */
    uint64_t n_requests, n_failed;
    foreign_members ignored;   /* that requests had */
    struct rank_counts counts; /* summed over all ranks */
};

/* Serves all requests of the input. Rank 0 calls this while the others call worker_run(). If the
 * run fails or is interrupted, every request in flight gets a result with the reason; rank 0's
 * worker may then still run, so the process must exit without freeing what `serve` points to. */
int dispatch_lines(const struct serve *serve, struct dispatch *dispatch, struct err *err) MUST_USE;

#endif
