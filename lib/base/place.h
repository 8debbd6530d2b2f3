/* Where an output goes: what its name stands for once links are followed, and whether two names are one place. */
#ifndef BMC_PLACE_H
#define BMC_PLACE_H

#include <sys/stat.h>

#include "base/err.h"

enum place_kind {
    PLACE_NEW,    /* nothing is there */
    PLACE_FILE,   /* a regular file */
    PLACE_FOLDER, /* no place for an output */
    PLACE_PIPE,   /* a device, a FIFO: written directly */
    PLACE_OPEN /* a descriptor that is open already: "-", /dev/stdout, /dev/stderr, /dev/fd/N, /proc/self/fd/N */
};

struct place {
    enum place_kind kind;
    int fd; /* PLACE_OPEN */
    struct stat
        st; /* of what is there; PLACE_NEW: of the folder, with st_ino 0 if that is missing, too */
    char path[4096];
};

/* Follows links, also one that points to nothing: what it points to is the place then. A link of somebody else in a
 * folder where everybody may write is an error, for it may point anywhere. */
int place_find(struct place *place, const char *path, struct err *err) MUST_USE;

/* Writing one would replace the other. */
bool place_same(const struct place *a, const struct place *b);

#endif
