/* The head of a model.bmc, shared by its reader and its writer. */
#ifndef BMC_BMCLAYOUT_H
#define BMC_BMCLAYOUT_H

#include "format/bmcfile.h"

#define BMC_MAGIC "BMCMODEL"

/* Sections of the header, each at a multiple of 64. */
enum { BMC_CONFIG, BMC_TOKENIZER, BMC_TENSORS, BMC_NAMES, BMC_TEXT, BMC_CHAT, BMC_SECTIONS };

struct bmc_section {
    uint64_t offset, bytes;
};

struct bmc_head {
    char magic[8];
    uint32_t version, reserved;
    uint64_t header_bytes; /* head and sections, rounded up to BMC_ALIGN */
    uint64_t file_bytes;
    struct hash header_hash; /* of the header_bytes, with this field zero */
    struct hash model_id;
    struct bmc_section section[BMC_SECTIONS];
    uint64_t spare[8];
};

struct hash bmc_header_hash(const void *header, size_t header_bytes);

/* The model's identity by its configuration, tokenizer, names and tensors' canonical hashes: bmc-model(5), "Identity". */
struct hash bmc_model_id(const struct bmc_file *file);

#endif
