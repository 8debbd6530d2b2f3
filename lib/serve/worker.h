/* The worker of a rank under data parallelism: serves the requests that the dispatcher sends it. */
#ifndef BMC_WORKER_H
#define BMC_WORKER_H

#include "serve/mailbox.h"
#include "serve/serve.h"

/* Serves requests until the dispatcher sends no more. If it fails, also sends the error to the
 * dispatcher, on ranks other than 0 prefixed with `rank_name`. */
int worker_run(const struct serve *serve, struct mailbox *mailbox, const char *rank_name,
               struct err *err) MUST_USE;

#endif
