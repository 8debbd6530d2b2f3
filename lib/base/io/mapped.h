/* Names of mapped files by address, to report in a SIGBUS handler which file was truncated. */
#ifndef BMC_MAPPED_H
#define BMC_MAPPED_H

#include <stddef.h>

/* Registers a mapping with the name to use in messages. */
void mapped_add(const void *data, size_t size, const char *name);
void mapped_remove(const void *data);

/* The name of the mapping that contains an address, or NULL. Async-signal-safe. */
const char *mapped_name(const void *address);

#endif
