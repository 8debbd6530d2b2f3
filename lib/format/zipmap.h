/* A zip archive in mapped memory: its entries by name, and where the bytes of a stored one lie, so that they are used in
 * place. libzip reads the archive. Knows nothing of what is in it. */
#ifndef BMC_ZIPMAP_H
#define BMC_ZIPMAP_H

#include "base/mem.h"

struct zipmap;

/* Opens `size` bytes of an archive called `name`; both must stay. */
int zipmap_open(struct zipmap **zip, const void *data, size_t size, const char *name,
                struct err *err) MUST_USE;
void zipmap_free(struct zipmap *zip);

/* The name of the first entry, or NULL. */
const char *zipmap_first(const struct zipmap *zip);

bool zipmap_has(const struct zipmap *zip, const char *entry);

/* Where the bytes of an entry lie in the archive: *data is NULL when there are none. One that is compressed or encrypted
 * is an error. */
int zipmap_place(struct zipmap *zip, const char *entry, const unsigned char **data, size_t *bytes,
                 struct err *err) MUST_USE;

/* Appends the bytes of an entry, at most `most`, compressed or not; they are compared with their check sum. */
int zipmap_read(struct zipmap *zip, const char *entry, size_t most, struct buf *out,
                struct err *err) MUST_USE;

#endif
