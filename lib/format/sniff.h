/* What a file is, by its first bytes: so that one that was given in the wrong place, or that is not what its name says, is
 * refused with what it is and what to do. */
#ifndef BMC_SNIFF_H
#define BMC_SNIFF_H

#include "base/err.h"

enum sniffed { SNIFF_UNKNOWN, SNIFF_MODEL, SNIFF_SNAPSHOT, SNIFF_GGUF, SNIFF_ZIP, SNIFF_LFS };

enum sniffed sniff(const void *data, size_t size);

/* An error for bytes of a file called `name` that are of a known kind, which is not the one that is `wanted` ("a
 * snapshot"); 0 for those that are unknown, or of the kind `good`. */
int sniff_refuse(const void *data, size_t size, enum sniffed good, const char *wanted, const char *name,
                 struct err *err) MUST_USE;

#endif
