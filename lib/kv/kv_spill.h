/* A file for what does not fit in memory, read and written while the caller goes on. It has no name, or has lost it at
 * once, so that nothing of it outlives the process.
 *
 * Addresses, offsets and sizes are multiples of SPILL_BLOCK: reads and writes go past the page cache where the file
 * system allows that. One thread at a time. */
#ifndef BMC_KV_SPILL_H
#define BMC_KV_SPILL_H

#include "base/err.h"

enum { SPILL_BLOCK = 4096, SPILL_DIR_SIZE = 512 };

/* Where a cache keeps what does not fit, as its option says. */
struct spill_place {
    size_t ram;   /* bytes that stay in memory at most */
    size_t group; /* heads that go together; 0: chosen */
    char dir[SPILL_DIR_SIZE];
};

struct spill;

/* What was begun together. Begins as zeros. */
struct spill_ticket {
    size_t pending; /* pieces that are under way */
    size_t bytes;   /* of all that was begun since it was last waited for */
    double since_ms;
    int error;         /* errno of the first piece that failed; 0: none */
    bool wrote, ended; /* that one was written; came to an end too early */
};

int spill_open(struct spill **spill, const char *dir, struct err *err) MUST_USE;

/* What is under way ends first. */
void spill_close(struct spill *spill);

/* Begins to read the file's bytes [offset, offset + bytes) to `at`, or to write them from there: the memory is the
 * file's until spill_wait(). */
void spill_read(struct spill *spill, struct spill_ticket *ticket, void *at, size_t offset,
                size_t bytes);
void spill_write(struct spill *spill, struct spill_ticket *ticket, const void *at, size_t offset,
                 size_t bytes);

/* Waits until all of a ticket has ended. It is as new then, on error too. */
int spill_wait(struct spill *spill, struct spill_ticket *ticket, struct err *err) MUST_USE;

/* Bytes per ms that reading has come to at best; before anything was read what a common disk does. */
double spill_pace(const struct spill *spill);

#endif
