/* Receiving messages of a known size, for all drivers of ranks. */
#include "ranks/ranks.h"

int ranks_take(struct ranks *ranks, int from, int tag, void *data, size_t bytes, struct err *err)
{
    size_t received;
    if (ranks->ops->receive(ranks, data, bytes, &from, &tag, &received, err) < 0)
        return -1;
    return received == bytes
               ? 0
               : err_set(err, "rank %d sent %zu bytes, %zu are expected", from, received, bytes);
}
