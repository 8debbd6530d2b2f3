/* Eviction of blocks from their folder. */
#ifndef BMC_KVBLOCK_EVICT_H
#define BMC_KVBLOCK_EVICT_H

#include <stddef.h>

/* Names of files: blocks are their key in hexadecimal and this suffix; unfinished ones begin with the
 * other. Files of other names are not touched. */
#define KVBLOCK_SUFFIX    ".kvblock"
#define KVBLOCK_TEMPORARY ".tmp-"

/* Bytes of the file "lock" that processes lock: the first one to evict, the others to claim. */
enum { KVBLOCK_LOCK_EVICT = 0, KVBLOCK_LOCK_CLAIMS = 1 };

struct kvblock_usage {
    size_t blocks, bytes; /* that there are, or remain */
    size_t evicted;       /* number of blocks that were removed */
};

/* Removes unfinished files whose writer has ended and, if the blocks have more than `most` bytes, the
 * least recently used ones until a sixteenth is free. If another process is evicting, nothing is removed.
 * Errors are ignored: what cannot be removed stays. */
struct kvblock_usage kvblock_evict(int folder_fd, int lock_fd, size_t most);

/* Counts the blocks. */
struct kvblock_usage kvblock_usage(int folder_fd);

#endif
