/* Eviction of blocks from their folder. */
#pragma once

/* Names of files: blocks are their key in hexadecimal and one of these suffixes of equal length; unfinished ones
 * begin with the other, and two numbers follow, as .tmp-123-0. Files of other names are not touched. */
#define KVBLOCK_SUFFIX    ".kvblock"
#define KVBLOCK_STATE     ".kvstate"
#define KVBLOCK_TEMPORARY ".tmp-"

#define KVBLOCK_LOCK_NAME "lock"

/* Bytes of that file that processes lock: the first one to evict, the others to claim. */
enum { KVBLOCK_LOCK_EVICT = 0, KVBLOCK_LOCK_CLAIMS = 1 };

struct kvblock_usage {
    size_t blocks, states; /* that there are, or remain: of KV entries, and recurrent states */
    size_t bytes;          /* of both */
    size_t evicted;        /* number of both that were removed */
};

/* Removes unfinished files whose writer has ended and, if the blocks have more than `most` bytes, the
 * least recently used ones until a sixteenth is free. If another process is evicting, nothing is removed.
 * Errors are ignored: what cannot be removed stays. */
struct kvblock_usage kvblock_evict(int folder_fd, int lock_fd, size_t most);

/* True if the folder is a prefix cache's: it holds a block, or nothing but what a prefix cache without blocks
 * leaves. */
bool kvblock_is_own(int folder_fd);

/* Counts the blocks and states. */
struct kvblock_usage kvblock_usage(int folder_fd);
