/* Untrusted folders of the prefix cache. The input is the contents of a block's file under the name of the
 * block that is expected, with KV heads of one size, of two, and with a recurrent state, and of the file of counters; and
 * it is checked in memory, as it is and with the expected header and hash. A block that is accepted has the
 * bytes that were hashed, and the KV entries of its layers are all of them. */
#include <fcntl.h>

#include "format/kvblock/kvblock_folder.h"
#include "tests/fuzz/support/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum kind { ONE_SIZE, TWO_SIZES, STATE, KINDS };

static void ignore(void *arg, const char *sentence)
{
    (void)arg;
    (void)sentence;
}

static const struct kvfile_sizes sizes_of[] = {{1, 2, 0, {0, 0}}, {2, 1, 0, {0, 0}}, {2, 1, 0, {0, 0}}};

/* A block of one layer, of three of which two have KV heads of another size, or a state of 48 bytes. */
static struct kvblock_head expected(enum kind kind)
{
    static const uint32_t token[KVBLOCK_TOKENS] = {1, 2, 3};
    static const struct hash parent;
    struct kvblock_head head;
    struct err err;
    if (kvblock_shape(&head, sizes_of, kind == TWO_SIZES ? 3 : 1, &err) < 0)
        abort();
    head.key = kvblock_key(&parent, token);
    memcpy(head.token, token, sizeof token);
    if (kind == STATE) {
        head.version = KVBLOCK_VERSION_STATE;
        head.bytes = 48;
    }
    return head;
}

/* The KV entries of all layers and heads lie one after the other and fill the block. */
static void walk(const struct kvblock_head *block)
{
    size_t next = sizeof *block;
    if (block->version == KVBLOCK_VERSION_STATE)
        return;
    for (size_t layer = 0; layer < block->layers; layer++)
        for (int v = 0; v < 2; v++) {
            if (kvblock_rows_at(sizes_of, layer, v) != next)
                abort();
            next += sizes_of[layer].kv_heads * kvblock_head_bytes(&sizes_of[layer], v);
        }
    if (next != sizeof *block + block->bytes)
        abort();
}

static void write_file(const char *path, const uint8_t *data, size_t size)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size))
        abort();
    close(fd);
}

static void unlink_in(const char *folder, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

static void get_block(const char *folder, const struct kvblock_head *want, const uint8_t *data)
{
    struct kvblock_head *block = calloc(1, kvblock_stride(want));
    struct kvblock_folder *f;
    enum kvblock_found next;
    struct err err;
    if (!block ||
        kvblock_folder_open(&f, folder, 1 << 20, (struct kvblock_warn){ignore, NULL}, &err) < 0)
        abort();
    if (kvblock_folder_get(f, want, 1, kvblock_now(), block, &next) == 1) {
        if (memcmp(block + 1, data + sizeof *block, (size_t)want->bytes) != 0)
            abort();
        walk(block);
        if (!kvblock_folder_put(f, block, kvblock_now()))
            abort();
    }
    kvblock_folder_count(f, 16, 16);
    kvblock_folder_close(f);
    free(block);
}

/* Counters are read, and were added to; those that cannot be used are replaced, other files of that name are not. */
static void count_in(const char *folder)
{
    struct kvblock_usage usage;
    struct kvblock_counts counts;
    struct err err;
    const int fd = open(folder, O_RDONLY | O_DIRECTORY);
    const bool foreign = kvblock_stats_state(fd) == KVBLOCK_STATS_FOREIGN;
    close(fd);
    if (!foreign && kvblock_folder_describe(folder, &usage, &counts, &err) < 0)
        abort();
}

static void in_folder(const struct kvblock_head *want, const uint8_t *data, size_t size)
{
    const char *suffix = want->version == KVBLOCK_VERSION_STATE ? KVBLOCK_STATE : KVBLOCK_SUFFIX;
    char folder[] = "/tmp/fuzz-kvblock-XXXXXX", name[2 * HASH_BYTES + 1], path[256];
    struct kvblock_usage usage;
    struct kvblock_counts counts;
    struct err err;
    if (!mkdtemp(folder))
        abort();
    hash_hex(&want->key, HASH_BYTES, name);
    snprintf(path, sizeof path, "%s/%s%s", folder, name, suffix);
    write_file(path, data, size);
    snprintf(path, sizeof path, "%s/" KVBLOCK_STATS_NAME, folder);
    write_file(path, data, size);
    (void)!kvblock_folder_describe(folder, &usage, &counts, &err);
    get_block(folder, want, data);
    count_in(folder);
    snprintf(path, sizeof path, "%s%s", name, suffix);
    unlink_in(folder, path);
    unlink_in(folder, KVBLOCK_STATS_NAME);
    unlink_in(folder, "lock");
    if (rmdir(folder) < 0)
        abort();
}

static void in_memory(const struct kvblock_head *want, const uint8_t *data, size_t size)
{
    struct kvblock_head head = *want;
    struct err err;
    unsigned char *copy = input_copy(data, size);
    if (!copy)
        return;
    (void)!kvblock_check(copy, size, want, &err);
    if (size >= sizeof head) { /* seal it, except its size */
        head.hash = hash_of(copy + sizeof head, size - sizeof head);
        memcpy(copy, &head, sizeof head);
        if ((kvblock_check(copy, size, want, &err) == 0) != (size == sizeof head + want->bytes))
            abort();
    }
    input_free(copy, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static size_t turn;
    const bool write = turn++ % 16 == 0; /* files are slow */
    for (enum kind kind = 0; kind < KINDS; kind++) {
        const struct kvblock_head want = expected(kind);
        in_memory(&want, data, size);
        if (write)
            in_folder(&want, data, size);
    }
    return 0;
}
