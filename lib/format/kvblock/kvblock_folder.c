/* Folders of blocks: reading, writing, claiming; eviction is in kvblock_evict.c. */
#include "format/kvblock/kvblock_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/threads.h"

enum { NAME_SIZE = 2 * HASH_BYTES + sizeof KVBLOCK_SUFFIX };
_Static_assert(sizeof KVBLOCK_SUFFIX == sizeof KVBLOCK_STATE, "names have one length");

struct kvblock_folder {
    char *path;
    int fd, lock_fd; /* lock_fd -1: processes cannot exclude each other */
    size_t size;
    bool counted;                /* the blocks that there are, before the first is written */
    size_t bytes, written;       /* of all blocks when they were counted last, and written since then */
    size_t n_temporary;          /* number of unfinished files so far, for their names */
    bool read_only;              /* writing has failed */
    bool warned_read, warned_at; /* a warning was given: of a damaged block; of the folder */
    struct kvblock_warn warn;
    struct kvblock_counts counts; /* that are not in the folder's file yet */
};

static void name_of(const struct hash *key, bool state, char name[NAME_SIZE])
{
    hash_hex(key, HASH_BYTES, name);
    memcpy(name + 2 * HASH_BYTES, state ? KVBLOCK_STATE : KVBLOCK_SUFFIX, sizeof KVBLOCK_SUFFIX);
}

static bool has_state(const struct kvblock_head *head)
{
    return head->version == KVBLOCK_VERSION_STATE;
}

static void count_blocks(struct kvblock_folder *f, size_t most)
{
    const struct kvblock_usage usage = kvblock_evict(f->fd, f->lock_fd, most);
    f->counted = true;
    f->bytes = usage.bytes;
    f->counts.evicted_blocks += usage.evicted;
    f->written = 0;
}

/* Adds the counts to the folder's; those that are not added remain for the next time. */
static void add_counts(struct kvblock_folder *f, bool wait)
{
    static const struct kvblock_counts none;
    if (memcmp(&f->counts, &none, sizeof none) != 0 && kvblock_stats_add(f->fd, &f->counts, wait))
        f->counts = none;
}

void kvblock_folder_count(struct kvblock_folder *f, size_t tokens, size_t found)
{
    f->counts.lookups++;
    f->counts.lookup_tokens += tokens;
    f->counts.hit_tokens += found;
    add_counts(f, false);
}

int kvblock_folder_describe(const char *path, struct kvblock_usage *usage,
                            struct kvblock_counts *counts, struct err *err)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, "%s: cannot open this folder", path);
    bool exists;
    struct err why;
    *usage = kvblock_usage(fd);
    const int rc = kvblock_stats_read(fd, counts, &exists, &why);
    close(fd);
    if (rc < 0)
        return err_set(err, "%s/" KVBLOCK_STATS_NAME ": %s", path, why.text);
    if (!exists && !usage->blocks && !usage->states)
        return err_set(err, "%s: is no prefix cache: it has neither blocks nor counters", path);
    return 0;
}

static void say(struct kvblock_folder *f, const char *what)
{
    struct err sentence;
    err_set(&sentence, "%s: %s", f->path, what);
    f->warn.say(f->warn.arg, sentence.text);
}

/* Opens the file whose bytes processes lock. Without it the folder is used all the same. */
static void open_lock(struct kvblock_folder *f)
{
    struct flock any = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    struct stat st;
    struct err why;
    f->lock_fd =
        openat(f->fd, KVBLOCK_LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    const bool regular = f->lock_fd >= 0 && fstat(f->lock_fd, &st) == 0 && S_ISREG(st.st_mode);
    if (regular && fcntl(f->lock_fd, F_OFD_GETLK, &any) == 0)
        return;
    errno = f->lock_fd >= 0 && !regular ? EINVAL : errno;
    err_errno(&why,
              "processes do not wait for each other's prefixes, and no blocks are evicted, since the "
              "file \"" KVBLOCK_LOCK_NAME "\" cannot be locked");
    say(f, why.text);
    if (f->lock_fd >= 0)
        close(f->lock_fd);
    f->lock_fd = -1;
}

int kvblock_folder_open(struct kvblock_folder **out, const char *path, size_t size,
                        struct kvblock_warn warn, struct err *err)
{
    struct kvblock_folder *f = *out = calloc(1, sizeof *f);
    if (!f)
        return err_no_memory(err, "a prefix cache");
    *f = (struct kvblock_folder){
        .path = strdup(path), .fd = -1, .lock_fd = -1, .size = size, .warn = warn};
    if (!f->path) {
        err_no_memory(err, "a prefix cache");
        goto fail;
    }
    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        err_errno(err, "%s: cannot create this folder", path);
        goto fail;
    }
    f->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->fd < 0) {
        err_errno(err, "%s: cannot open this folder", path);
        goto fail;
    }
    if (!kvblock_is_own(f->fd)) {
        err_set(
            err,
            "%s: is not empty and holds no blocks of a prefix cache, so nothing is stored in it: name "
            "a new folder",
            path);
        goto fail;
    }
    if (kvblock_stats_state(f->fd) == KVBLOCK_STATS_FOREIGN)
        say(f, "its file \"" KVBLOCK_STATS_NAME
               "\" holds no counters of a prefix cache: it is left as it is, and nothing is counted");
    open_lock(f);
    return 0;
fail:
    kvblock_folder_close(f);
    *out = NULL;
    return -1;
}

void kvblock_folder_close(struct kvblock_folder *f)
{
    if (!f)
        return;
    if (f->written)
        count_blocks(f, f->size);
    if (f->fd >= 0)
        add_counts(f, true);
    if (f->lock_fd >= 0)
        close(f->lock_fd);
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    free(f);
}

bool kvblock_folder_has(const struct kvblock_folder *f, const struct hash *key, bool state)
{
    char name[NAME_SIZE];
    name_of(key, state, name);
    return faccessat(f->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

uint64_t kvblock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void mark_used(int fd, uint64_t used)
{
    const struct timespec at = {(time_t)(used / 1000000000), (long)(used % 1000000000)};
    (void)!futimens(fd, (const struct timespec[]){at, at});
}

static int read_all(int fd, char *to, size_t bytes, struct err *err)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pread(fd, to + done, bytes - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, "cannot read");
        if (n == 0)
            return err_set(err, "ends after %zu of %zu bytes", done, bytes);
        done += (size_t)n;
    }
    return 0;
}

/* Reads an open file that should be a block. Its bytes are checked in memory, so that later changes of
 * the file do not matter. */
static int read_block(int fd, const struct kvblock_head *want, struct kvblock_head *block,
                      struct err *err)
{
    const size_t bytes = sizeof *want + (size_t)want->bytes;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, "cannot stat");
    if (!S_ISREG(st.st_mode))
        return err_set(err, "is no regular file");
    if (st.st_uid != geteuid())
        return err_set(err, "belongs to another user");
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return err_set(err, "others may write to it");
    if (st.st_size < 0 || (uint64_t)st.st_size != bytes)
        return err_set(err, "has %lld bytes, a block has %zu", (long long)st.st_size, bytes);
    return read_all(fd, (char *)block, bytes, err) < 0 ? -1 : kvblock_check(block, bytes, want, err);
}

/* Reads and checks a block. Thread-safe. */
static enum kvblock_found get_block(const struct kvblock_folder *f, const struct kvblock_head *want,
                                    uint64_t used, struct kvblock_head *block, struct err *err)
{
    char name[NAME_SIZE];
    name_of(&want->key, has_state(want), name);
    const int fd = openat(f->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return KVBLOCK_MISSING;
    const int rc = fd < 0 ? err_errno(err, "cannot open") : read_block(fd, want, block, err);
    if (rc == 0)
        mark_used(fd, used);
    if (fd >= 0)
        close(fd);
    return rc == 0 ? KVBLOCK_FOUND : KVBLOCK_DAMAGED;
}

static void drop_damaged(struct kvblock_folder *f, const struct kvblock_head *want,
                         const struct err *why)
{
    char name[NAME_SIZE];
    struct err sentence;
    name_of(&want->key, has_state(want), name);
    (void)!unlinkat(f->fd, name, 0);
    err_set(&sentence, "%s/%.16s..: %s: the block is dropped and computed again", f->path, name,
            why->text);
    if (!f->warned_read)
        f->warn.say(f->warn.arg, sentence.text);
    f->warned_read = true;
    f->counts.dropped_blocks++;
}

struct getting {
    const struct kvblock_folder *folder;
    const struct kvblock_head *want;
    uint64_t used;
    char *to;
    bool *found;
};

static void get_one(void *arg, size_t i)
{
    const struct getting *g = arg;
    struct err err;
    g->found[i] =
        get_block(g->folder, &g->want[i], g->used - i * KVBLOCK_USE_NS,
                  (struct kvblock_head *)(g->to + i * kvblock_stride(g->want)), &err) == KVBLOCK_FOUND;
}

size_t kvblock_folder_get(struct kvblock_folder *f, const struct kvblock_head *want, size_t n,
                          uint64_t used, struct kvblock_head *blocks, enum kvblock_found *next)
{
    bool found[KVBLOCK_AT_ONCE];
    struct getting g = {f, want, used, (char *)blocks, found};
    size_t i = 0;
    assert(n <= KVBLOCK_AT_ONCE);
    parallel_for(n, n * (size_t)want->bytes, get_one, &g);
    *next = KVBLOCK_FOUND;
    for (; i < n && *next == KVBLOCK_FOUND; i++) {
        struct err err;
        if (found[i])
            continue;
        *next = get_block(f, &want[i], used - i * KVBLOCK_USE_NS,
                          (struct kvblock_head *)(g.to + i * kvblock_stride(want)), &err);
        if (*next == KVBLOCK_DAMAGED)
            drop_damaged(f, &want[i], &err);
    }
    return *next == KVBLOCK_FOUND ? i : i - 1;
}

/* ---- writing ---- */

static bool fail_writing(struct kvblock_folder *f, const struct err *why)
{
    f->read_only = true;
    if (!f->warned_at)
        f->warn.say(f->warn.arg, why->text);
    f->warned_at = true;
    return false;
}

static int write_all(int fd, const char *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = write(fd, from + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        done += (size_t)n;
    }
    return 0;
}

/* Creates an unfinished file. It is locked while its writer lives, which tells kvblock_evict() that it is
 * not to be removed. */
static int open_temporary(struct kvblock_folder *f, char name[NAME_SIZE])
{
    struct stat st;
    int fd = -1;
    for (int try = 0; try < 100 && fd < 0; try++) {
        snprintf(name, NAME_SIZE, KVBLOCK_TEMPORARY "%ld-%zu", (long)getpid(), f->n_temporary++);
        fd = openat(f->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST)
            return -1;
        /* another process may take it for a leftover before it is locked */
        if (fd >= 0 && ((flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) ||
                        (fstat(fd, &st) == 0 && !st.st_nlink))) {
            close(fd);
            fd = -1;
        }
    }
    return fd;
}

bool kvblock_folder_writes(const struct kvblock_folder *f) { return !f->read_only; }

bool kvblock_folder_put(struct kvblock_folder *f, struct kvblock_head *block, uint64_t used)
{
    const size_t bytes = sizeof *block + (size_t)block->bytes;
    char name[NAME_SIZE], temporary[NAME_SIZE];
    struct err err;
    if (f->read_only)
        return false;
    if (bytes > f->size) {
        err_set(&err, "%s: a %s has %zu bytes: nothing is stored with size=%zu", f->path,
                has_state(block) ? "recurrent state" : "block of KV entries", bytes, f->size);
        return fail_writing(f, &err);
    }
    if (!f->counted || f->bytes + f->written + bytes > f->size || f->written > f->size / 32)
        count_blocks(f, f->size - bytes);
    block->hash = hash_of(block + 1, (size_t)block->bytes);
    name_of(&block->key, has_state(block), name);
    const int fd = open_temporary(f, temporary);
    if (fd < 0) {
        err_errno(&err, "%s: cannot create a file, no more blocks are stored", f->path);
        return fail_writing(f, &err);
    }
    bool ok = write_all(fd, (const char *)block, bytes) == 0;
    mark_used(fd, used);
    ok = ok && renameat(f->fd, temporary, f->fd, name) == 0;
    if (!ok) {
        err_errno(&err, "%s: cannot write a block, no more of them are stored", f->path);
        (void)!unlinkat(f->fd, temporary, 0);
    }
    close(fd);
    f->written += ok ? bytes : 0;
    f->counts.stored_blocks += ok;
    add_counts(f, false);
    return ok || fail_writing(f, &err);
}

/* ---- claims: locks on bytes of the file "lock", which end with the process ---- */

static int set_lock(const struct kvblock_folder *f, const struct hash *key, short type)
{
    uint64_t at;
    memcpy(&at, key, sizeof at);
    struct flock lock = {.l_type = type,
                         .l_whence = SEEK_SET,
                         .l_start = (off_t)(KVBLOCK_LOCK_CLAIMS + (at >> 2)),
                         .l_len = 1};
    return fcntl(f->lock_fd, F_OFD_SETLK, &lock);
}

bool kvblock_folder_claim(struct kvblock_folder *f, const struct hash *key)
{
    return f->lock_fd < 0 || f->read_only || set_lock(f, key, F_WRLCK) == 0 ||
           (errno != EAGAIN && errno != EACCES);
}

void kvblock_folder_release(struct kvblock_folder *f, const struct hash *key)
{
    if (f->lock_fd >= 0)
        (void)!set_lock(f, key, F_UNLCK);
}
