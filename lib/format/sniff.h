/* What kind of file something is, by its first bytes: so that nothing is replaced by something else, and so that a file
 * that was given in the wrong place, or is not what its name says, is refused with what it is and what to do. */
#ifndef BMC_SNIFF_H
#define BMC_SNIFF_H

#include "base/err.h"

enum file_kind {
    KIND_OTHER, /* or not there, empty, unreadable */
    KIND_MODEL,
    KIND_SNAPSHOT,
    KIND_PROFILE,
    KIND_ACCEPTANCE,
    KIND_IMPORTANCE,
    KIND_SAFETENSORS,
    KIND_GGUF,
    KIND_ZIP,
    KIND_LFS,
    KIND_FOLDER, /* by path_sniff() only */
    FILE_KINDS
};

enum file_kind sniff(const void *data, size_t size);
enum file_kind file_sniff(const char *path);

/* The same of a path that may be a folder. */
enum file_kind path_sniff(const char *path);

/* As it stands in a sentence: "model file", "snapshot". */
const char *file_kind_name(enum file_kind kind);

/* An error for bytes of a file called `name` that are of a known kind, which is not the one that is `wanted` ("a
 * snapshot"); 0 for those that are of the kind `good`, or of one that has no other place. */
int sniff_refuse(const void *data, size_t size, enum file_kind good, const char *wanted,
                 const char *name, struct err *err) MUST_USE;

/* An error for a path where nothing is and that reads like a name on a hub of models; `what` was looked for ("folder"),
 * and `advice` is what follows the fetching. 0 for other paths. */
int sniff_hub_name(const char *path, const char *what, const char *advice, struct err *err) MUST_USE;

#endif
