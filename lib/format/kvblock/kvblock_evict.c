/* Eviction of blocks: the least recently used ones, by the time in their files. */
#include "format/kvblock/kvblock_evict.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "format/kvblock/kvblock_stats.h"

enum { NAME_BYTES = 2 * HASH_BYTES + sizeof KVBLOCK_SUFFIX };

struct block_file {
    char name[NAME_BYTES];
    size_t bytes;
    struct timespec used;
};

struct block_list {
    struct block_file *file;
    size_t n, cap, bytes, blocks, states;
};

static bool is_state(const char *name) { return strcmp(name + 2 * HASH_BYTES, KVBLOCK_STATE) == 0; }

static bool is_block(const char *name)
{
    return strspn(name, "0123456789abcdef") == 2 * HASH_BYTES &&
           (strcmp(name + 2 * HASH_BYTES, KVBLOCK_SUFFIX) == 0 || is_state(name));
}

static bool is_temporary(const char *name)
{
    const size_t len = strlen(KVBLOCK_TEMPORARY);
    if (strncmp(name, KVBLOCK_TEMPORARY, len) != 0)
        return false;
    const size_t process = strspn(name + len, "0123456789");
    const char *end = name + len + process;
    return process && *end == '-' && end[1] && !end[1 + strspn(end + 1, "0123456789")];
}

static void remove_leftover(int folder, const char *name)
{
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        (void)!unlinkat(folder, name, 0);
    close(fd);
}

static void add_block(struct block_list *list, int folder, const char *name)
{
    struct stat st;
    struct err err;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) || st.st_size < 0)
        return;
    list->bytes = size_plus(list->bytes, (size_t)st.st_size);
    *(is_state(name) ? &list->states : &list->blocks) += 1;
    if (mem_grow(&list->file, &list->cap, list->n, sizeof *list->file, &err) < 0)
        return;
    struct block_file *file = &list->file[list->n++];
    *file = (struct block_file){.bytes = (size_t)st.st_size, .used = st.st_mtim};
    memcpy(file->name, name, NAME_BYTES);
}

static DIR *open_list(int folder)
{
    const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0)
        close(fd);
    return dir;
}

bool kvblock_is_own(int folder)
{
    static const char *const known[] = {".", "..", KVBLOCK_LOCK_NAME};
    DIR *dir = open_list(folder);
    const struct dirent *entry;
    bool own = false, only_known = true;
    while (dir && !own && (entry = readdir(dir))) {
        bool is_known = is_temporary(entry->d_name);
        for (size_t i = 0; i < ARRAY_LEN(known); i++)
            is_known = is_known || strcmp(entry->d_name, known[i]) == 0;
        own = is_block(entry->d_name);
        only_known = only_known && is_known;
    }
    if (dir)
        closedir(dir);
    return own || only_known || kvblock_stats_state(folder) == KVBLOCK_STATS_OWN;
}

static void list_files(struct block_list *list, int folder, bool clean)
{
    DIR *dir = open_list(folder);
    const struct dirent *entry;
    if (!dir)
        return;
    while ((entry = readdir(dir)))
        if (is_block(entry->d_name))
            add_block(list, folder, entry->d_name);
        else if (clean && is_temporary(entry->d_name))
            remove_leftover(folder, entry->d_name);
    closedir(dir);
}

static int by_use(const void *a, const void *b)
{
    const struct timespec x = ((const struct block_file *)a)->used,
                          y = ((const struct block_file *)b)->used;
    if (x.tv_sec != y.tv_sec)
        return x.tv_sec < y.tv_sec ? -1 : 1;
    return (x.tv_nsec > y.tv_nsec) - (x.tv_nsec < y.tv_nsec);
}

static bool lock(int lock_fd, short type)
{
    struct flock lock = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = KVBLOCK_LOCK_EVICT, .l_len = 1};
    return lock_fd >= 0 && fcntl(lock_fd, F_OFD_SETLK, &lock) == 0;
}

struct kvblock_usage kvblock_usage(int folder_fd)
{
    struct block_list list = {0};
    list_files(&list, folder_fd, false);
    free(list.file);
    return (struct kvblock_usage){list.blocks, list.states, list.bytes, 0};
}

struct kvblock_usage kvblock_evict(int folder_fd, int lock_fd, size_t most)
{
    struct block_list list = {0};
    size_t evicted = 0;
    const bool alone = lock(lock_fd, F_WRLCK);
    list_files(&list, folder_fd, alone);
    if (alone && list.bytes > most) {
        qsort(list.file, list.n, sizeof *list.file, by_use);
        for (size_t i = 0; i < list.n && list.bytes > most - most / 16; i++)
            if (unlinkat(folder_fd, list.file[i].name, 0) == 0) {
                *(is_state(list.file[i].name) ? &list.states : &list.blocks) -= 1;
                list.bytes -= size_min(list.bytes, list.file[i].bytes);
                evicted++;
            }
    }
    if (alone)
        (void)lock(lock_fd, F_UNLCK);
    free(list.file);
    return (struct kvblock_usage){list.blocks, list.states, list.bytes, evicted};
}
