/* Which file a mapped address belongs to: what a handler of SIGBUS needs to know, when a file was truncated under its mapping. */
#ifndef BMC_MAPPED_H
#define BMC_MAPPED_H

#include <stddef.h>

/* A file is mapped there, under a name for messages; and it is going to be unmapped. */
void mapped_add(const void *data, size_t size, const char *name);
void mapped_remove(const void *data);

/* The name of the file that is mapped at an address; NULL: none that is known. Async-signal-safe. */
const char *mapped_name(const void *address);

#endif
