/* Runs programs that a model asks for: without network, in a file system that is read-only but for an empty /tmp of their own,
 * without other processes, capabilities, and environment, within limits of time, memory and output.
 *
 * bubblewrap sets that up if it is installed and works here, else Landlock and seccomp do by system calls: then /tmp is a
 * new folder that TMPDIR and HOME name, other processes exist but take no signals. In both a filter of system calls
 * (sandbox_filter.c) applies. */
#pragma once

#include "base/mem.h"

enum {
    SANDBOX_SECONDS = 30,
    SANDBOX_OUTPUT = 32 << 10, /* bytes of standard output that are read, and of standard error */
    SANDBOX_MEMORY_MIB = 1024, /* of a process */
    SANDBOX_FILE_MIB = 16
};

struct sandbox {
    char bwrap[64];     /* path of bubblewrap; "": Landlock and seccomp */
    double seconds;     /* that a program may take: SANDBOX_SECONDS */
    const char *folder; /* that programs may read besides those of the system; borrowed */
};

/* Finds out which sandbox works here. Fails with a sentence if none does. */
int sandbox_open(struct sandbox *sandbox, const char *folder, struct err *err) MUST_USE;

struct sandbox_result {
    struct buf out, error; /* standard output and error, up to SANDBOX_OUTPUT bytes */
    int status;            /* exit status; -1: a signal ended it */
    bool late, cut;        /* ended after its time, or as it wrote more */
};

/* Runs a program with `input` as its standard input, and waits for its end; processes that it leaves behind are ended. A
 * name without a slash is looked for in /usr/local/bin, /usr/bin and /bin; other relative names begin at the folder. Fails if
 * it cannot be started. The caller releases the buffers of the result in either case. */
int sandbox_run(const struct sandbox *sandbox, char *const *argv, const char *input, size_t len,
                struct sandbox_result *result, struct err *err) MUST_USE;
