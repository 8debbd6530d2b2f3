/* Models that are converted on first use.
 *
 * The folder has a file NAME-KEY.bmc for each source: its own name, for people, and 16 digits of the hash of its state.
 * Of the file "lock" each key has two bytes. Processes lock the first one shared while they need the model, and
 * exclusively while they remove it; the second one shared while they look for it, and exclusively while they make it.
 * Nobody waits for the first one longer than a removal takes, so that a process that uses a model whose file somebody
 * has deleted keeps no other from converting its source again. */
#include "model/convert/model_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text_util.h"
#include "format/detect.h"
#include "format/source.h"

/* Is raised when a source becomes another model than before. */
enum { CONVERSION_VERSION = 4 };

enum { DIGITS = 16, NAME_MAX_BYTES = 100 };
static const char ending[] = ".bmc", temporary[] = ".bmc.tmp-", lock_name[] = "lock";

struct folder {
    const char *path;
    int fd, lock; /* lock -1: the file system has no locks, or is read-only */
};

bool model_cache_converts(const char *path)
{
    const enum file_kind kind = path_detect(path);
    return kind == KIND_GGUF || kind == KIND_FOLDER;
}

/* ---- locks ---- */

enum lock_byte { LOCK_USE, LOCK_MAKE };

static struct flock lock_of(uint64_t key, enum lock_byte byte, int type)
{
    return (struct flock){.l_type = (short)type,
                          .l_whence = SEEK_SET,
                          .l_start = (off_t)((key >> 2) * 2 + byte),
                          .l_len = 1};
}

/* Locks a byte of a key in an open file of its own, for which locks of the same process count as others do. */
static bool lock_key(int fd, uint64_t key, enum lock_byte byte, int type, bool wait)
{
    struct flock lock = lock_of(key, byte, type);
    int rc;
    while ((rc = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock)) < 0 && errno == EINTR)
        ;
    return rc == 0;
}

/* After a lock that was not given: true if others have the byte, false if there are no locks. */
static bool is_locked(void) { return errno == EAGAIN || errno == EACCES; }

static bool is_used(int fd, uint64_t key)
{
    struct flock lock = lock_of(key, LOCK_USE, F_WRLCK);
    return fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static int open_lock(int folder)
{
    struct stat st;
    const int fd =
        openat(folder, lock_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)))
        return fd;
    close(fd);
    return -1;
}

/* ---- the folder ---- */

static void close_folder(struct folder *folder)
{
    if (folder->lock >= 0)
        close(folder->lock);
    if (folder->fd >= 0)
        close(folder->fd);
}

/* Others could exchange a model for one that they have made. */
static bool others_write(const struct stat *st)
{
    return st->st_uid != geteuid() || st->st_mode & (S_IWGRP | S_IWOTH);
}

static int open_folder(struct folder *folder, const char *path, struct err *err)
{
    struct stat st;
    *folder = (struct folder){.path = path, .lock = -1};
    folder->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->fd < 0)
        return err_errno(err, "%s: cannot open this folder of converted models", path);
    if (fstat(folder->fd, &st) == 0 && others_write(&st)) {
        close_folder(folder);
        return err_set(err,
                       "%s: belongs to another user or can be written by others, so models in it are "
                       "not trusted: set XDG_CACHE_HOME to a folder of your own",
                       path);
    }
    folder->lock = open_lock(folder->fd);
    return 0;
}

/* Creates the folder and those above it, private as the XDG specification asks. */
static int make_folder(const char *path, const char *source, struct err *err)
{
    file_make_parents(path);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_errno(
            err,
            "%s: cannot create the folder of converted models for %s (XDG_CACHE_HOME names "
            "another one; bmc-convert %s -o MODEL.bmc needs none)",
            path, source, source);
    return 0;
}

/* Reads the key that precedes `end` in a file's name; false: there is none. */
static bool key_before(const char *name, const char *end, uint64_t *key)
{
    const char *digits = end - DIGITS;
    char text[DIGITS + 1] = "";
    if (end - name <= DIGITS || digits[-1] != '-')
        return false;
    memcpy(text, digits, DIGITS);
    *key = strtoull(text, NULL, 16);
    return strspn(text, "0123456789abcdef") == DIGITS;
}

static bool describe(const struct folder *folder, const char *name, struct model_cache_entry *entry)
{
    struct stat st;
    *entry = (struct model_cache_entry){0};
    if (!text_ends(name, ending) || strlen(name) >= sizeof entry->name ||
        !key_before(name, name + strlen(name) - strlen(ending), &entry->key) ||
        fstatat(folder->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode))
        return false;
    strcpy(entry->name, name);
    entry->bytes = (size_t)st.st_size;
    entry->used = st.st_atim;
    entry->own = S_ISREG(st.st_mode) && !others_write(&st);
    entry->in_use = is_used(folder->lock, entry->key);
    return true;
}

static int by_use(const void *a, const void *b)
{
    const struct timespec x = ((const struct model_cache_entry *)a)->used,
                          y = ((const struct model_cache_entry *)b)->used;
    return x.tv_sec != y.tv_sec ? (x.tv_sec > y.tv_sec) - (x.tv_sec < y.tv_sec)
                                : (x.tv_nsec > y.tv_nsec) - (x.tv_nsec < y.tv_nsec);
}

/* Calls `one` for each name in the folder, until it returns false. */
static int each_name(const struct folder *folder, bool (*one)(void *arg, const char *name), void *arg,
                     struct err *err)
{
    const int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    if (!dir && fd >= 0)
        close(fd);
    if (!dir)
        return err_errno(err, "%s: cannot list this folder", folder->path);
    while ((entry = readdir(dir)) && one(arg, entry->d_name))
        ;
    closedir(dir);
    return 0;
}

struct listing {
    const struct folder *folder;
    struct model_cache_entry *entry;
    size_t n, cap;
    int rc;
    struct err *err;
};

static bool add_entry(void *arg, const char *name)
{
    struct listing *list = arg;
    struct model_cache_entry entry;
    if (!describe(list->folder, name, &entry))
        return true;
    list->rc = mem_grow(&list->entry, &list->cap, list->n, sizeof entry, list->err);
    if (list->rc == 0)
        list->entry[list->n++] = entry;
    return list->rc == 0;
}

/* Lists the models, the least recently used first. The caller frees them, also after an error. */
static int list_models(struct listing *list, const struct folder *folder, struct err *err)
{
    *list = (struct listing){.folder = folder, .err = err};
    if (each_name(folder, add_entry, list, err) < 0 || list->rc < 0)
        return -1;
    if (list->n)
        qsort(list->entry, list->n, sizeof *list->entry, by_use);
    return 0;
}

int model_cache_list(const char *path, struct model_cache_entry **entry, size_t *n, struct err *err)
{
    struct folder folder;
    struct listing list;
    *entry = NULL;
    *n = 0;
    if (!file_exists(path))
        return 0;
    if (open_folder(&folder, path, err) < 0)
        return -1;
    const int rc = list_models(&list, &folder, err);
    close_folder(&folder);
    if (rc < 0) {
        free(list.entry);
        return -1;
    }
    *entry = list.entry;
    *n = list.n;
    return 0;
}

/* ---- removal ---- */

/* Removes a file of the key, unless a process uses or makes it. */
static bool remove_unused(const struct folder *folder, const char *name, uint64_t key)
{
    const bool locked = folder->lock >= 0;
    if (locked && !lock_key(folder->lock, key, LOCK_USE, F_WRLCK, false))
        return false;
    const bool removed = unlinkat(folder->fd, name, 0) == 0;
    if (locked)
        (void)lock_key(folder->lock, key, LOCK_USE, F_UNLCK, false);
    return removed;
}

struct leftovers {
    const struct folder *folder;
    const uint64_t *own; /* the key that this process has locked to make its model; NULL: none */
};

/* Removes the unfinished file of a process that was killed. */
static bool remove_leftover(void *arg, const char *name)
{
    const struct leftovers *left = arg;
    uint64_t key;
    const char *at = strstr(name, temporary);
    if (!at || !key_before(name, at, &key))
        return true;
    if (left->own && key == *left->own)
        (void)!unlinkat(left->folder->fd, name, 0);
    else
        (void)remove_unused(left->folder, name, key);
    return true;
}

int model_cache_clear(const char *path, size_t *removed, size_t *bytes, size_t *left, struct err *err)
{
    struct folder folder;
    struct listing list;
    *removed = *bytes = *left = 0;
    if (!file_exists(path))
        return 0;
    if (open_folder(&folder, path, err) < 0)
        return -1;
    int rc = each_name(&folder, remove_leftover, &(struct leftovers){&folder, NULL}, err);
    rc = list_models(&list, &folder, err) < 0 ? -1 : rc;
    for (size_t i = 0; rc == 0 && i < list.n; i++) {
        const bool gone = remove_unused(&folder, list.entry[i].name, list.entry[i].key);
        *removed += gone;
        *left += !gone && list.entry[i].in_use;
        *bytes += gone ? list.entry[i].bytes : 0;
        if (!gone && !list.entry[i].in_use)
            rc = err_errno(err, "%s/%s: cannot be removed", path, list.entry[i].name);
    }
    free(list.entry);
    close_folder(&folder);
    return rc;
}

/* ---- room for a model ---- */

static size_t free_bytes(const struct folder *folder)
{
    struct statvfs fs;
    size_t bytes;
    return fstatvfs(folder->fd, &fs) == 0 && size_mul(fs.f_bavail, fs.f_frsize, &bytes) ? bytes
                                                                                        : SIZE_MAX;
}

/* A conversion, and whether there is room for its model yet. */
struct making {
    const struct model_cache *cache;
    struct folder *folder;
    const char *source;
    uint64_t key;
    size_t bytes;
    bool has_room;
};

static int refuse_size(const struct making *m, struct err *err)
{
    const bool limit = m->bytes > m->cache->max_bytes;
    return err_set(err,
                   "%s: converted it has %zu MiB, but %s %s %zu MiB%s: %s, or convert it to a file "
                   "elsewhere: bmc-convert %s -o MODEL.bmc",
                   m->source, m->bytes >> 20, m->folder->path,
                   limit ? "may have at most" : "has room for",
                   (limit ? m->cache->max_bytes : free_bytes(m->folder)) >> 20,
                   limit ? " (BMC_CACHE_SIZE)" : " more",
                   limit ? "raise the limit" : "make room, as by bmc-convert --cache clear", m->source);
}

/* Removes the least recently used models until the new one fits. */
static int make_room(const struct making *m, struct err *err)
{
    const size_t most = m->cache->max_bytes;
    struct listing list;
    size_t sum = 0;
    (void)each_name(m->folder, remove_leftover, &(struct leftovers){m->folder, &m->key}, err);
    if (m->bytes > most)
        return refuse_size(m, err);
    if (list_models(&list, m->folder, err) < 0) {
        free(list.entry);
        return -1;
    }
    for (size_t i = 0; i < list.n; i++)
        sum = size_plus(sum, list.entry[i].bytes);
    for (size_t i = 0; i < list.n; i++)
        if ((sum > most - m->bytes || free_bytes(m->folder) < m->bytes) &&
            remove_unused(m->folder, list.entry[i].name, list.entry[i].key))
            sum -= list.entry[i].bytes;
    free(list.entry);
    return free_bytes(m->folder) < m->bytes ? refuse_size(m, err)
           : sum > most - m->bytes
               ? err_set(err,
                         "%s: %s is full of models in use, %zu MiB of at most %zu (BMC_CACHE_SIZE): "
                         "raise the limit, or end programs that use them",
                         m->source, m->folder->path, sum >> 20, most >> 20)
               : 0;
}

/* Before the first tensor is written the size of the file is known. */
static int need_room(void *arg, const struct planned_tensor *tensor, struct err *err)
{
    struct making *m = arg;
    (void)tensor;
    if (m->has_room)
        return 0;
    m->has_room = true;
    return make_room(m, err);
}

/* ---- a model ---- */

/* The key of a source's state, for this version of the conversion. */
static int key_of(const char *source, uint64_t *key, struct err *err)
{
    const uint32_t versions[] = {CONVERSION_VERSION, BMC_VERSION};
    struct hash hash;
    struct hasher hasher;
    if (source_identify(source, &hash, err) < 0)
        return -1;
    hasher_init(&hasher);
    hasher_add(&hasher, versions, sizeof versions);
    hasher_add(&hasher, &hash, sizeof hash);
    hash = hasher_result(&hasher);
    *key = 0;
    for (size_t i = 0; i < sizeof *key; i++)
        *key = *key << 8 | hash.byte[i];
    return 0;
}

/* Names the file after its source, with characters that need no quotes. */
static void name_file(const char *source, uint64_t key, char name[256])
{
    const char *end = source + strlen(source);
    while (end > source + 1 && end[-1] == '/')
        end--;
    const char *begin = end;
    while (begin > source && begin[-1] != '/')
        begin--;
    static const char plain[] = "._+-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t len = size_min((size_t)(end - begin), NAME_MAX_BYTES);
    memcpy(name, begin, len);
    name[len] = 0;
    if (text_ends_like(name, ".gguf"))
        name[len -= strlen(".gguf")] = 0;
    for (size_t at = strspn(name, plain); at < len; at += strspn(name + at, plain))
        name[at++] = '_';
    if (len && strchr("._+-", *name))
        *name = '_';
    snprintf(name + len, 256 - len, "-%016llx%s", (unsigned long long)key, ending);
}

/* Looks for the model of a key; 1: found, 0: not there. */
static int find_model(const struct folder *folder, uint64_t key, struct cached_model *model,
                      struct err *err)
{
    struct listing list;
    const struct model_cache_entry *found = NULL;
    static const struct timespec now_for_use[] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    int rc = list_models(&list, folder, err);
    for (size_t i = 0; i < list.n; i++)
        found = list.entry[i].key == key ? &list.entry[i] : found;
    if (rc == 0 && found) {
        snprintf(model->path, sizeof model->path, "%s/%s", folder->path, found->name);
        rc = 1;
        if (!found->own)
            rc = err_set(
                err, "%s: is no regular file that you alone can write, so it is not used: remove it",
                model->path);
        else
            (void)utimensat(folder->fd, found->name, now_for_use, AT_SYMLINK_NOFOLLOW);
    }
    free(list.entry);
    return rc;
}

static int convert_now(const struct model_cache *cache, struct folder *folder, const char *source,
                       uint64_t key, struct cached_model *model, struct err *err)
{
    struct making making = {.cache = cache, .folder = folder, .source = source, .key = key};
    struct convert_options options = cache->convert;
    struct hash model_id;
    char name[256];
    uint64_t now;
    options.types = (struct tensor_types){.type = DTYPE_COUNT};
    options.private = true;
    options.size = &making.bytes;
    options.planned = need_room;
    options.planned_arg = &making;
    name_file(source, key, name);
    snprintf(model->path, sizeof model->path, "%s/%s", folder->path, name);
    if (convert_folder(source, model->path, &options, &model_id, err) < 0)
        return -1;
    if (key_of(source, &now, err) == 0 && now == key) {
        model->converted = making.bytes;
        return 0;
    }
    (void)!unlinkat(folder->fd, name, 0);
    return err_set(err, "%s: was changed while it was converted: start again", source);
}

/* Locks a key to look for its model, or to make it, for which it waits while another process makes it. */
static void lock_to_make(const struct model_cache *cache, int lock, uint64_t key, int type,
                         const char *source)
{
    if (lock_key(lock, key, LOCK_MAKE, type, false) || !is_locked())
        return;
    if (cache->waits)
        cache->waits(cache->arg, source);
    (void)lock_key(lock, key, LOCK_MAKE, type, true);
}

static int open_in(const struct model_cache *cache, struct folder *folder, const char *source,
                   uint64_t key, struct cached_model *model, struct err *err)
{
    const int lock = model->lock = open_lock(folder->fd);
    (void)lock_key(lock, key, LOCK_USE, F_RDLCK, true);
    lock_to_make(cache, lock, key, F_RDLCK, source);
    int rc = find_model(folder, key, model, err);
    /* Is given back first: two processes that had it shared would wait for each other. */
    (void)lock_key(lock, key, LOCK_MAKE, F_UNLCK, false);
    if (rc != 0)
        return rc;
    lock_to_make(cache, lock, key, F_WRLCK, source);
    rc = find_model(folder, key, model, err);
    if (rc == 0)
        rc = convert_now(cache, folder, source, key, model, err);
    (void)lock_key(lock, key, LOCK_MAKE, F_UNLCK, false);
    return rc;
}

int model_cache_open(const struct model_cache *cache, const char *source, struct cached_model *model,
                     struct err *err)
{
    struct folder folder;
    uint64_t key;
    *model = (struct cached_model){.lock = -1};
    if (!model_cache_converts(source)) {
        const int len = snprintf(model->path, sizeof model->path, "%s", source);
        return len >= 0 && (size_t)len < sizeof model->path
                   ? 0
                   : err_set(err, "the name of the model is longer than %zu bytes",
                             sizeof model->path - 1);
    }
    if (key_of(source, &key, err) < 0)
        return -1;
    if (!cache->folder)
        return err_set(err, "%s: %s: convert it: bmc-convert %s -o MODEL.bmc", source, cache->why,
                       source);
    if (make_folder(cache->folder, source, err) < 0 || open_folder(&folder, cache->folder, err) < 0)
        return -1;
    const int rc = open_in(cache, &folder, source, key, model, err);
    close_folder(&folder);
    if (rc >= 0)
        return 0;
    cached_model_close(model);
    return -1;
}

void cached_model_close(struct cached_model *model)
{
    if (model->lock >= 0)
        close(model->lock);
    model->lock = -1;
}
