/* What kind of file something is, by its first bytes: so that nothing is replaced by something else. */
#ifndef BMC_SNIFF_H
#define BMC_SNIFF_H

#include "base/base.h"

enum file_kind {
    KIND_OTHER, /* or not there, empty, unreadable */
    KIND_MODEL,
    KIND_SNAPSHOT,
    KIND_PROFILE,
    KIND_ACCEPTANCE,
    KIND_SAFETENSORS,
    KIND_GGUF,
    FILE_KINDS
};

enum file_kind file_sniff(const char *path);

/* As it stands in a sentence: "model file", "snapshot". */
const char *file_kind_name(enum file_kind kind);

#endif
