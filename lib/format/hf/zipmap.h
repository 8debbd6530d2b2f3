/* A zip archive in mapped memory, read through libzip: entries by name, and the position of
 * uncompressed ones, so that they can be used in place. */
#ifndef BMC_ZIPMAP_H
#define BMC_ZIPMAP_H

#include "base/mem.h"

struct zipmap;

/* Opens an archive of `size` bytes called `name`; `data` and `name` are borrowed. */
int zipmap_open(struct zipmap **zip, const void *data, size_t size, const char *name,
                struct err *err) MUST_USE;
void zipmap_free(struct zipmap *zip);

/* The name of the first entry, or NULL. */
const char *zipmap_first(const struct zipmap *zip);

bool zipmap_has(const struct zipmap *zip, const char *entry);

/* Sets *data to the bytes of an uncompressed entry in the mapped archive, NULL if it is empty.
 * Compressed or encrypted entries are an error. */
int zipmap_locate(struct zipmap *zip, const char *entry, const unsigned char **data, size_t *bytes,
                  struct err *err) MUST_USE;

/* Appends the contents of an entry, decompressed, after verifying its checksum; more than `most`
 * bytes are an error. */
int zipmap_read(struct zipmap *zip, const char *entry, size_t most, struct buf *out,
                struct err *err) MUST_USE;

#endif
