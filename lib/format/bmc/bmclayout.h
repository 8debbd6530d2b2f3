/* The header of model.bmc, shared by reader and writer. */
#pragma once

#include "format/bmc/bmcfile.h"

#define BMC_MAGIC "BMCMODEL"

/* Sections of the header, each 64-byte aligned. */
enum { BMC_CONFIG, BMC_TOKENIZER, BMC_TENSORS, BMC_NAMES, BMC_TEXT, BMC_CHAT, BMC_SECTIONS };

struct bmc_section {
    uint64_t offset, bytes;
};

struct bmc_head {
    char magic[8];
    uint32_t version, reserved;
    uint64_t header_bytes; /* header and sections, rounded up to BMC_ALIGN */
    uint64_t file_bytes;
    struct hash header_hash; /* of the first header_bytes bytes with this field zeroed */
    struct hash model_id;
    struct bmc_section section[BMC_SECTIONS];
    /* The draft head: an image of its own, to the end of the file. Offset 0: there is none. */
    struct bmc_section draft;
    struct hash draft_hash; /* header_hash of that image */
    uint64_t spare[2];
};

struct hash bmc_header_hash(const void *header, size_t header_bytes);

/* Computes model_id, the hash of configuration, tokenizer, names and canonical tensor hashes
 * (bmc-model(5), "Identity"). */
struct hash bmc_model_id(const struct bmc_file *file);
