/* model.bmc from a hostile source: header, configuration, tokenizer tables and weights, as opening a
 * model reads them. Sizes and the header's hash are put right first, since no fuzzer would find them.
 */
#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>

#include "format/bmclayout.h"
#include "model/weights.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void open_parts(const struct bmc_file *file)
{
    struct conf conf;
    struct config config;
    struct weights weights;
    struct tokenizer *tok = NULL;
    struct err err;
    if (conf_parse(&conf, file->config, file->config_bytes, "fuzz", &err) < 0)
        return;
    if (config_read(&config, &conf, &err) == 0 &&
        tokenizer_open(&tok, file->tokenizer, file->tokenizer_bytes, &err) == 0 &&
        weights_bind(&weights, &config, file, "fuzz", &err) == 0)
        weights_release(&weights);
    tokenizer_free(tok);
    conf_release(&conf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bmc_file file;
    struct err err;
    unsigned char *copy = aligned_alloc(64, size + 64 - size % 64);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    ASAN_POISON_MEMORY_REGION(copy + size, 64 - size % 64); /* a read beyond the file is an error */
    struct bmc_head *head = (void *)copy;
    if (size >= sizeof *head) {
        head->file_bytes = size;
        if (head->header_bytes <= size && head->header_bytes >= sizeof *head)
            head->header_hash = bmc_header_hash(copy, (size_t)head->header_bytes);
    }
    if (bmc_file_parse(&file, copy, size, "fuzz", &err) == 0) {
        file.map.data = copy;
        (void)bmc_file_find(&file, "layers.0.q.weight");
        open_parts(&file);
        (void)!bmc_file_verify(&file, "fuzz", NULL, NULL, &err);
    }
    ASAN_UNPOISON_MEMORY_REGION(copy + size, 64 - size % 64);
    free(copy);
    return 0;
}
