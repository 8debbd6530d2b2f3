/* Files: read-only mappings for input, atomic replacement for output. */
#include "base/file.h"

#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/output_path.h"
#include "base/threads.h"
#include "base/vm.h"

/* ---- mappings of large files, and copies of them in transparent huge pages ---- */

/* Maps a file for reading, at a multiple of 2 MiB if it is that large. NULL with errno set on failure. */
static void *map_huge_file(int fd, size_t bytes)
{
    char *at = bytes < HUGE_PAGE ? NULL : vm_reserve(VM_THP, bytes);
    void *data = mmap(at, bytes, PROT_READ, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
    if (data != MAP_FAILED)
        return data;
    const int why = errno;
    vm_release(at, bytes);
    errno = why;
    return NULL;
}

struct copy_job {
    char *to;
    const char *from;
    size_t bytes;
};

static void copy_part(void *arg, size_t i)
{
    const struct copy_job *job = arg;
    const size_t at = i * HUGE_PAGE;
    memcpy(job->to + at, job->from + at, size_min(HUGE_PAGE, job->bytes - at));
}

/* The file is mapped a second time while the copy takes its place. (A copy made elsewhere could not be moved there:
 * mremap() refuses memory with several NUMA policies.) */
bool map_huge_copy(void *mapped, size_t bytes, map_huge_place *place, void *arg)
{
    void *file = mremap(mapped, 0, bytes, MREMAP_MAYMOVE);
    if (file == MAP_FAILED)
        return false;
    void *copy =
        mmap(mapped, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (copy == MAP_FAILED)
        return mremap(file, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, mapped), false;
    madvise(copy, bytes, MADV_HUGEPAGE);
    if (place)
        place(arg, copy);
    struct copy_job job = {copy, file, bytes};
    parallel_for(div_up(bytes, HUGE_PAGE), bytes, copy_part, &job);
    mprotect(copy, bytes, PROT_READ);
    munmap(file, bytes);
    return true;
}

/* ---- names of mapped files, in a table that a signal handler can read at any time ---- */

enum { MAX_MAPPED = 256, NAME_SIZE = 512 };

/* Table of mappings. `data`, a mapping's address, is set last and cleared first, so that the other
 * members are valid while it is not 0. Mappings beyond MAX_MAPPED are not recorded. */
static struct {
    atomic_bool taken;
    atomic_uintptr_t data;
    size_t size;
    char name[NAME_SIZE];
} mapped[MAX_MAPPED];

void mapped_add(const void *data, size_t size, const char *name)
{
    const size_t len = strlen(name);
    size_t i = 0;
    while (i < MAX_MAPPED && atomic_exchange(&mapped[i].taken, true))
        i++;
    if (i == MAX_MAPPED)
        return;
    mapped[i].size = size;
    if (len < NAME_SIZE)
        memcpy(mapped[i].name, name, len + 1);
    else
        snprintf(mapped[i].name, NAME_SIZE, "...%s", name + len + sizeof "..." - NAME_SIZE);
    text_make_printable(mapped[i].name, strlen(mapped[i].name), "");
    atomic_store(&mapped[i].data, (uintptr_t)data);
}

void mapped_remove(const void *data)
{
    for (size_t i = 0; i < MAX_MAPPED; i++)
        if (atomic_load(&mapped[i].data) == (uintptr_t)data) {
            atomic_store(&mapped[i].data, 0);
            atomic_store(&mapped[i].taken, false);
            return;
        }
}

const char *mapped_name(const void *address)
{
    const uintptr_t at = (uintptr_t)address;
    for (size_t i = 0; i < MAX_MAPPED; i++) {
        const uintptr_t data = atomic_load(&mapped[i].data);
        if (data && at >= data && at - data < mapped[i].size)
            return mapped[i].name;
    }
    return NULL;
}

enum { MAX_UNFINISHED = 8, TEMP_PATH_SIZE = 4096 + 32 };

/* Temporary files that exist now. `in_use` is set only after `path` is complete, because signal
 * handlers read both. */
static struct {
    volatile int in_use;
    char path[TEMP_PATH_SIZE];
} unfinished[MAX_UNFINISHED];

int file_map_open(struct file_map *map, const char *path, int *out_fd, struct err *err)
{
    *map = (struct file_map){0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not block on a FIFO */
    if (fd < 0)
        return err_errno(err, "%s: cannot open", path);
    struct stat st;
    if (fstat(fd, &st) < 0) {
        err_errno(err, "%s: cannot stat", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        err_set(err, "%s: is %s, a regular file is needed", path,
                S_ISDIR(st.st_mode) ? "a folder" : "a device or pipe");
        goto out;
    }
    map->size = (size_t)st.st_size;
    if (map->size) {
        void *data = map_huge_file(fd, map->size);
        if (!data) {
            err_errno(err, "%s: cannot map %zu bytes", path, map->size);
            goto out;
        }
        map->data = data;
        mapped_add(data, map->size, path);
    }
    *out_fd = fd;
    return 0;
out:
    close(fd);
    return -1;
}

int file_map(struct file_map *map, const char *path, struct err *err)
{
    int fd;
    if (file_map_open(map, path, &fd, err) < 0)
        return -1;
    close(fd);
    return 0;
}

void file_unmap(struct file_map *map)
{
    file_unmap_private((void *)(uintptr_t)map->data, map->size);
    *map = (struct file_map){0};
}

void *file_map_private(int fd, size_t offset, size_t bytes, const char *name)
{
    void *data =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, (off_t)offset);
    if (data == MAP_FAILED)
        return NULL;
    mapped_add(data, bytes, name);
    return data;
}

void file_map_release_pages(const struct file_map *map)
{
    if (map->data)
        (void)madvise((void *)(uintptr_t)map->data, map->size, MADV_DONTNEED);
}

void file_unmap_private(void *data, size_t bytes)
{
    if (data) {
        mapped_remove(data);
        munmap(data, bytes);
    }
}

bool file_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

void file_make_parents(const char *path)
{
    AUTO(free_auto) char *part = strdup(path);
    for (char *slash = part; slash && (slash = strchr(slash + 1, '/')); *slash = '/') {
        *slash = 0;
        (void)!mkdir(part, 0700);
    }
}

/* Creates the temporary file of an entry of `unfinished` and sets its in_use. Signals are blocked
 * meanwhile, so that no handler sees the file without in_use. */
static int create_unfinished(int slot, mode_t mode)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const int fd = open(unfinished[slot].path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    const int why = errno;
    unfinished[slot].in_use = fd >= 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = why;
    return fd;
}

/* Creates a temporary file PATH.tmp-PID-N next to the output. */
static int open_temporary(struct outfile *out, mode_t mode, struct err *err)
{
    int slot = 0;
    while (slot < MAX_UNFINISHED && unfinished[slot].in_use)
        slot++;
    if (slot == MAX_UNFINISHED)
        return err_set(err, "%s: more than %d outputs are open", out->path, MAX_UNFINISHED);
    for (int try = 0; try < 100; try++) {
        snprintf(unfinished[slot].path, TEMP_PATH_SIZE, "%s.tmp-%ld-%d", out->path, (long)getpid(),
                 try);
        out->fd = create_unfinished(slot, mode);
        if (out->fd >= 0) {
            out->slot = slot;
            out->seekable = true;
            return 0;
        }
        if (errno != EEXIST)
            break;
    }
    return err_errno(err, "%s: cannot create a file in its folder", out->path);
}

/* Gives the new file the owner, group and mode of the file it replaces, as far as permitted. If the
 * group cannot be kept, the group gets no more access than others have. */
static void keep_access(int fd, const struct stat *old)
{
    struct stat now;
    mode_t mode = old->st_mode & 0777;
    const bool known = fstat(fd, &now) == 0;
    if (!known || ((now.st_uid != old->st_uid || now.st_gid != old->st_gid) &&
                   fchown(fd, old->st_uid, old->st_gid) < 0 && now.st_gid != old->st_gid &&
                   fchown(fd, (uid_t)-1, old->st_gid) < 0))
        mode &= 0707 | (mode & 07) << 3;
    (void)!fchmod(fd, mode);
}

static const volatile sig_atomic_t *stopped;

void file_stop_waiting(const volatile sig_atomic_t *flag) { stopped = flag; }

/* Opens a device or FIFO for writing. Polls until a FIFO has a reader: a blocking open() would be
 * restarted after a signal, or miss a signal that came just before it. */
static int open_stream(const struct output_path *output, struct err *err)
{
    enum { PAUSE_MS = 20 };
    int fd;
    while ((fd = open(output->path, O_WRONLY | O_CLOEXEC | O_NONBLOCK)) < 0 && errno == ENXIO &&
           S_ISFIFO(output->st.st_mode)) {
        if (stopped && *stopped)
            return err_set(err, "%s: interrupted while waiting for a reader", output->path);
        poll(NULL, 0, PAUSE_MS);
    }
    if (fd < 0)
        return err_errno(err, "%s: cannot open for writing", output->path);
    fcntl(fd, F_SETFL, 0);
    return fd;
}

static int open_output(struct outfile *out, const char *path, mode_t mode, struct err *err)
{
    struct output_path output;
    *out = (struct outfile){.fd = -1, .slot = -1};
    if (output_path_find(&output, path, err) < 0)
        return -1;
    strcpy(out->path, output.path);
    if (output.kind == OUTPUT_FOLDER)
        return err_set(err, "%s: is a folder, an output file is needed", path);
    if (output.kind == OUTPUT_NEW)
        return open_temporary(out, mode, err);
    if (output.kind == OUTPUT_FILE) {
        if (open_temporary(out, 0600, err) < 0)
            return -1;
        keep_access(out->fd, &output.st);
        return 0;
    }
    out->direct = true;
    if (output.kind == OUTPUT_STREAM)
        return (out->fd = open_stream(&output, err)) < 0 ? -1 : 0;
    out->fd = dup(output.fd);
    return out->fd < 0 ? err_errno(err, "%s: cannot open for writing", path) : 0;
}

int outfile_open(struct outfile *out, const char *path, struct err *err)
{
    return open_output(out, path, 0666, err);
}

int outfile_open_private(struct outfile *out, const char *path, struct err *err)
{
    return open_output(out, path, 0600, err);
}

/* Writes all bytes: at *offset of the file, or at its current position if `offset` is NULL. */
static int write_all(const struct outfile *out, const size_t *offset, const char *bytes, size_t len,
                     struct err *err)
{
    for (size_t done = 0; done < len;) {
        const ssize_t n = offset ? pwrite(out->fd, bytes + done, len - done, (off_t)(*offset + done))
                                 : write(out->fd, bytes + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_errno(err, "%s: cannot write", out->path);
        done += (size_t)n;
    }
    return 0;
}

static int write_held(struct outfile *out, struct err *err)
{
    const size_t n = out->n_held;
    out->n_held = 0;
    return write_all(out, NULL, out->held, n, err);
}

int outfile_write(struct outfile *out, const void *bytes, size_t len, struct err *err)
{
    const char *from = bytes;
    if (!out->whole_pages) {
        out->written += len;
        return write_all(out, NULL, from, len, err);
    }
    if (!out->held && !(out->held = mem_alloc(1, HUGE_PAGE)))
        return err_no_memory(err, "%s", out->path);
    while (len > 0) {
        const size_t n = size_min(len, HUGE_PAGE - out->written % HUGE_PAGE);
        memcpy(out->held + out->n_held, from, n);
        out->n_held += n;
        out->written += n;
        from += n;
        len -= n;
        if (out->written % HUGE_PAGE == 0 && write_held(out, err) < 0)
            return -1;
    }
    return 0;
}

int outfile_write_at(struct outfile *out, size_t offset, const void *bytes, size_t len, struct err *err)
{
    return write_held(out, err) < 0 ? -1 : write_all(out, &offset, bytes, len, err);
}

int outfile_commit(struct outfile *out, struct err *err)
{
    int rc = write_held(out, err);
    free(out->held);
    out->held = NULL;
    if (rc == 0 && !out->direct && fsync(out->fd) < 0)
        rc = err_errno(err, "%s: cannot write", out->path);
    int fd = out->fd;
    out->fd = -1;
    if (close(fd) < 0 && rc == 0)
        rc = err_errno(err, "%s: cannot write", out->path);
    if (out->direct)
        return rc;
    if (rc == 0 && rename(unfinished[out->slot].path, out->path) < 0)
        rc = err_errno(err, "%s: cannot rename the finished file to it", out->path);
    if (rc < 0)
        unlink(unfinished[out->slot].path);
    unfinished[out->slot].in_use = 0;
    return rc;
}

void outfile_abort(struct outfile *out)
{
    free(out->held);
    out->held = NULL;
    if (out->fd < 0)
        return;
    close(out->fd);
    out->fd = -1;
    if (out->slot >= 0) {
        unlink(unfinished[out->slot].path);
        unfinished[out->slot].in_use = 0;
    }
}

static int save_file(const char *path, unsigned mode, const void *bytes, size_t len, struct err *err)
{
    struct outfile out;
    if (open_output(&out, path, mode, err) < 0)
        return -1;
    int rc = outfile_write(&out, bytes, len, err);
    if (rc == 0)
        rc = outfile_commit(&out, err);
    outfile_abort(&out);
    return rc;
}

int outfile_save(const char *path, const void *bytes, size_t len, struct err *err)
{
    return save_file(path, 0666, bytes, len, err);
}

int outfile_save_private(const char *path, const void *bytes, size_t len, struct err *err)
{
    return save_file(path, 0600, bytes, len, err);
}

void file_remove_unfinished(void)
{
    for (int i = 0; i < MAX_UNFINISHED; i++)
        if (unfinished[i].in_use)
            unlink(unfinished[i].path);
}
