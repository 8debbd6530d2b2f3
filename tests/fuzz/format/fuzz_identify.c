/* The state of a GGUF file, by which its converted model is found: it is the same as long as the file is, and another
 * one when a byte of its header is written, also if size and time stay. */
#include <sys/stat.h>

#include "format/gguf/gguf.h"
#include "format/source.h"
#include "tests/fuzz/support/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Changes a byte of a file, which keeps its time; returns the byte of before. */
static unsigned char write_byte(int fd, size_t at, unsigned char byte)
{
    struct stat st;
    unsigned char before = 0;
    if (fstat(fd, &st) < 0 || pread(fd, &before, 1, (off_t)at) != 1 ||
        pwrite(fd, &byte, 1, (off_t)at) != 1 ||
        futimens(fd, (struct timespec[]){st.st_atim, st.st_mtim}) < 0)
        abort();
    return before;
}

static size_t header_bytes(const uint8_t *data, size_t size)
{
    struct gguf gguf;
    struct err err;
    if (gguf_parse(&gguf, data, size, "fuzz", true, &err) < 0)
        return 0;
    const size_t bytes = gguf.header_bytes;
    gguf_release(&gguf);
    return bytes;
}

/* The first two bytes choose what is changed. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct hash first, again;
    struct err err;
    if (size < 3)
        return 0;
    const int fd = input_file(data + 2, size - 2, path);
    if (fd < 0)
        return 0;
    if (source_identify(path, &first, &err) == 0) {
        const size_t bytes = header_bytes(data + 2, size - 2),
                     at = bytes ? (size_t)(data[0] | data[1] << 8) % bytes : 0;
        if (source_identify(path, &again, &err) < 0 || !hash_equal(&first, &again) || bytes > size)
            abort();
        const unsigned char before =
            write_byte(fd, at, (unsigned char)(data[2 + at] ^ (1 + data[1] % 255)));
        if (source_identify(path, &again, &err) == 0 && hash_equal(&first, &again))
            abort();
        write_byte(fd, at, before);
        if (source_identify(path, &again, &err) < 0 || !hash_equal(&first, &again))
            abort();
    }
    close(fd);
    return 0;
}
