/* Untrusted blocks of the prefix cache: the input is first the contents of a file in the folder, under the
 * name of the block that is expected, and is then checked in memory, once as it is and once with the
 * expected header and hash. A block that is accepted has the bytes that were hashed. */
#include <fcntl.h>

#include "format/kvblock/kvblock_folder.h"
#include "support/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ignore(void *arg, const char *sentence)
{
    (void)arg;
    (void)sentence;
}

static struct kvblock_head expected(void)
{
    static const uint32_t token[KVBLOCK_TOKENS] = {1, 2, 3};
    static const struct hash parent;
    struct kvblock_head head;
    struct err err;
    if (kvblock_shape(&head, DTYPE_F32, 1, 1, 2, 0, &err) < 0)
        abort();
    head.key = kvblock_key(&parent, token);
    memcpy(head.token, token, sizeof token);
    return head;
}

static void in_folder(const uint8_t *data, size_t size)
{
    char folder[] = "/tmp/fuzz-kvblock-XXXXXX", path[256], name[2 * HASH_BYTES + 1];
    const struct kvblock_head want = expected();
    struct kvblock_head *block = calloc(1, sizeof want + (size_t)want.bytes);
    struct kvblock_folder *f;
    struct err err;
    if (!block || !mkdtemp(folder) ||
        kvblock_folder_open(&f, folder, 1 << 20, (struct kvblock_warn){ignore, NULL}, &err) < 0)
        abort();
    hash_hex(&want.key, HASH_BYTES, name);
    snprintf(path, sizeof path, "%s/%s.kvblock", folder, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size))
        abort();
    close(fd);
    if (kvblock_folder_get(f, &want, 0, block) == KVBLOCK_FOUND &&
        memcmp(block + 1, data + sizeof *block, (size_t)want.bytes) != 0)
        abort();
    kvblock_folder_close(f);
    unlink(path);
    snprintf(path, sizeof path, "%s/lock", folder);
    unlink(path);
    rmdir(folder);
    free(block);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static size_t turn;
    const struct kvblock_head want = expected();
    struct kvblock_head head = want;
    struct err err;
    unsigned char *copy = input_copy(data, size);
    if (!copy)
        return 0;
    (void)!kvblock_check(copy, size, &want, &err);
    if (size >= sizeof head) { /* seal it, except its size */
        head.hash = hash_of(copy + sizeof head, size - sizeof head);
        memcpy(copy, &head, sizeof head);
        if ((kvblock_check(copy, size, &want, &err) == 0) != (size == sizeof head + want.bytes))
            abort();
    }
    if (turn++ % 16 == 0) /* files are slow */
        in_folder(data, size);
    input_free(copy, size);
    return 0;
}
