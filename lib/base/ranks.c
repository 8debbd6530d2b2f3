/* What everybody does with the table of ranks. */
#include "base/ranks.h"

int ranks_take(struct ranks *ranks, int from, int tag, void *data, size_t bytes, struct err *err)
{
    size_t came;
    if (ranks->ops->receive(ranks, data, bytes, &from, &tag, &came, err) < 0)
        return -1;
    return came == bytes ? 0
                         : err_set(err, "rank %d sent %zu bytes in place of %zu", from, came, bytes);
}
