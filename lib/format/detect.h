/* Detects the kind of a file by its first bytes: to refuse overwriting a file of another kind,
 * and to explain what is wrong with an unexpected input. */
#pragma once

#include "base/err.h"

enum file_kind {
    KIND_OTHER, /* any other file, or one that is missing, empty or unreadable */
    KIND_MODEL,
    KIND_SNAPSHOT,
    KIND_PROFILE,
    KIND_ACCEPTANCE,
    KIND_IMATRIX,
    KIND_SAFETENSORS,
    KIND_GGUF,
    KIND_ZIP,
    KIND_LFS,
    KIND_STATS, /* of --stats */
    KIND_CHART, /* of --plot */
    KIND_HEADS, /* lists of retrieval heads, and ranges of a KV cache, made by bmc-prof */
    KIND_RANGES,
    KIND_SENSITIVITY,
    KIND_LOGITS,
    KIND_RECEIPT,
    KIND_PRESSURE,
    KIND_FOLDER, /* found by path_detect() only */
    FILE_KINDS
};

/* First bytes of files that bmc-prof writes. */
#define HEADS_BEGIN       "# Retrieval heads, as layer and head"
#define RANGES_BEGIN      "# Ranges of K and V by layer and KV head"
#define SENSITIVITY_BEGIN "# Costs of types of KV entries"

/* First bytes of logs of memory pressure (decode/pressure_log.h). */
#define PRESSURE_BEGIN "# Events of memory pressure"

/* First bytes of receipts (serve/receipt.h). */
#define RECEIPT_BEGIN "{\"receipt\":"

/* Detects the kind by the first bytes, in memory or of a file. */
enum file_kind file_format(const void *data, size_t size);
enum file_kind file_detect(const char *path);

/* Detects the kind of a path that may be a folder. */
enum file_kind path_detect(const char *path);

/* The name of a kind for messages: "model file", "snapshot". */
const char *file_kind_name(enum file_kind kind);

/* Fails if the bytes of file `name` are of a known kind other than `good`; `wanted` names the
 * expected input ("a snapshot"). 0 if they are of kind `good` or unknown. */
int detect_refuse(const void *data, size_t size, enum file_kind good, const char *wanted,
                  const char *name, struct err *err) MUST_USE;

/* Fails if `path` does not exist and looks like a URL or a model name on the Hugging Face hub. `expected` is
 * the expected input ("folder"); `advice` completes the sentence after "download it". 0 for other
 * paths. */
int detect_hub_name(const char *path, const char *expected, const char *advice,
                    struct err *err) MUST_USE;

/* ---- the table of unsupported architectures ---- */

/* Why the architecture called `name` in config.json or GGUF is not supported: "a recurrent model
 * ..", to follow "is". NULL: not listed. */
const char *unsupported_arch(const char *name);
