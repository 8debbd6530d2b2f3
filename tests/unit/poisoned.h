/* A backend for tests: that of the CPU over memory of its own, which cannot be read or written unless one of its
 * functions runs. What it adopts it copies, and nobody can read the original any more, not even the backend. Whatever
 * touches a tensor outside of a backend, or uses an address of the process for one of the backend's, ends the test, with
 * a backtrace. */
#ifndef BMC_TEST_POISONED_H
#define BMC_TEST_POISONED_H

#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/cpu.h"
#include "cpu/cpu_memory.h"

enum { POISON_PAGE = 4096, POISON_REGIONS = 4096 };
#define POISON_SPACE ((size_t)1 << 36) /* address space of blocks, which are never used twice */

static struct {
    pthread_mutex_t lock, adopting; /* of what follows; of `region` */
    size_t running;                 /* functions of the backend, of all threads, nested ones too */
    char *space;
    size_t used;
    /* adopted memory, the copy, and the whole pages that nobody can read: how they could be used before */
    struct poison_region {
        const char *at;
        size_t bytes, users;
        struct device_addr copy;
        char *first;
        size_t hidden;
        int access;
    } region[POISON_REGIONS];
    size_t n;
    size_t windows, adopted; /* how often memory was opened, and memory was adopted */
} poison = {.lock = PTHREAD_MUTEX_INITIALIZER, .adopting = PTHREAD_MUTEX_INITIALIZER};

static void poison_set(bool open)
{
    if (poison.used)
        mprotect(poison.space, poison.used, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static void poison_enter(void)
{
    pthread_mutex_lock(&poison.lock);
    if (poison.running++ == 0) {
        poison_set(true);
        poison.windows++;
    }
    pthread_mutex_unlock(&poison.lock);
}

static void poison_leave(void)
{
    pthread_mutex_lock(&poison.lock);
    if (--poison.running == 0)
        poison_set(false);
    pthread_mutex_unlock(&poison.lock);
}

static size_t poison_pages(size_t bytes)
{
    return (bytes + POISON_PAGE - 1) / POISON_PAGE * POISON_PAGE;
}

/* ---- memory ---- */

static struct device_addr poison_take(size_t bytes, int fill)
{
    pthread_mutex_lock(&poison.lock);
    if (!poison.space) {
        void *space =
            mmap(NULL, POISON_SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        poison.space = space == MAP_FAILED ? NULL : space;
    }
    char *block = NULL;
    const size_t pages = poison_pages(bytes ? bytes : 1);
    if (poison.space && pages <= POISON_SPACE - poison.used) {
        block = poison.space + poison.used;
        poison.used += pages;
        mprotect(block, pages, PROT_READ | PROT_WRITE);
        if (fill)
            memset(block, fill, bytes);
        if (!poison.running)
            mprotect(block, pages, PROT_NONE);
    }
    pthread_mutex_unlock(&poison.lock);
    return cpu_addr(block);
}

/* Contents are NaN. */
static struct device_addr poison_alloc(enum vm_alloc how, size_t bytes)
{
    (void)how;
    return poison_take(bytes, 0xff);
}

static void poison_free(enum vm_alloc how, struct device_addr block, size_t bytes)
{
    (void)how;
    if (!addr_is_null(block))
        madvise(cpu_at(block), poison_pages(bytes ? bytes : 1), MADV_DONTNEED);
}

static struct device_addr poison_reserve(enum vm_alloc how, size_t bytes)
{
    (void)how;
    return poison_take(bytes, 0);
}

static void poison_release(struct device_addr block, size_t bytes)
{
    poison_free(VM_MMAP, block, bytes);
}

static bool poison_commit(struct device_addr from, size_t bytes)
{
    poison_enter();
    const bool ok = cpu_memory.commit(from, bytes);
    poison_leave();
    return ok;
}

static void poison_drop(struct device_addr from, size_t bytes) { cpu_memory.drop(from, bytes); }

/* How the process may use the page at `at`. */
static int poison_access(const char *at)
{
    char line[512];
    int access = PROT_READ;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char flags[5];
        if (sscanf(line, "%lx-%lx %4s", &from, &to, flags) == 3 && (uintptr_t)at >= from &&
            (uintptr_t)at < to)
            access = (flags[0] == 'r' ? PROT_READ : 0) | (flags[1] == 'w' ? PROT_WRITE : 0);
    }
    if (maps)
        fclose(maps);
    return access;
}

/* Hides the pages of regions that overlap with [first, first + bytes), or shows them. Returns one of them, or NULL. */
static const struct poison_region *poison_hide(const char *first, size_t bytes, bool hide)
{
    const struct poison_region *found = NULL;
    for (struct poison_region *r = poison.region; r < poison.region + poison.n; r++)
        if (r->hidden && r->first < first + bytes && first < r->first + r->hidden) {
            mprotect(r->first, r->hidden, hide ? PROT_NONE : r->access);
            found = r;
        }
    return found;
}

/* A copy of memory that is adopted for the first time; of it, its whole pages are hidden and, of a mapped file, where
 * each tensor has pages of its own, the rest of the last one. */
static struct device_addr poison_adopt_new(const void *memory, size_t bytes)
{
    char *first = (char *)poison_pages((uintptr_t)memory), *end = (char *)(uintptr_t)memory + bytes;
    const struct poison_region *other = poison_hide(memory, bytes, false);
    const int access = other ? other->access : poison_access(first);
    const struct device_addr copy = poison_take(bytes, 0xff);
    if (addr_is_null(copy))
        return copy;
    poison_enter();
    memcpy(cpu_at(copy), memory, bytes);
    poison_leave();
    if (first == memory && access == PROT_READ)
        end = first + poison_pages(bytes);
    end -= (uintptr_t)end % POISON_PAGE;
    poison.region[poison.n++] = (struct poison_region){
        memory, bytes, 1, copy, first, first < end ? (size_t)(end - first) : 0, access};
    poison_hide(memory, bytes, true);
    return copy;
}

static struct device_addr poison_adopt(const void *memory, size_t bytes)
{
    struct device_addr at = {0};
    pthread_mutex_lock(&poison.adopting);
    poison.adopted++;
    for (size_t i = 0; i < poison.n && addr_is_null(at); i++)
        if (poison.region[i].at == memory && poison.region[i].bytes == bytes) {
            poison.region[i].users++;
            at = poison.region[i].copy;
        }
    if (addr_is_null(at) && poison.n < POISON_REGIONS)
        at = poison_adopt_new(memory, bytes);
    pthread_mutex_unlock(&poison.adopting);
    return at;
}

static void poison_disown(struct device_addr block, size_t bytes)
{
    pthread_mutex_lock(&poison.adopting);
    for (size_t i = poison.n; i-- > 0;) {
        struct poison_region *r = &poison.region[i];
        if (!addr_equal(r->copy, block) || --r->users)
            continue;
        const char *first = r->first;
        const size_t hidden = r->hidden;
        poison_hide(first, hidden, false);
        *r = poison.region[--poison.n];
        poison_hide(first, hidden, true); /* those that overlap with it */
        poison_free(VM_MALLOC, block, bytes);
    }
    pthread_mutex_unlock(&poison.adopting);
}

static bool poison_owns(struct device_addr at)
{
    return (uintptr_t)cpu_at(at) - (uintptr_t)poison.space < POISON_SPACE;
}

static void poison_read(void *to, struct device_addr from, size_t bytes)
{
    poison_enter();
    cpu_memory.read(to, from, bytes);
    poison_leave();
}

static void poison_write(struct device_addr to, const void *from, size_t bytes)
{
    poison_enter();
    cpu_memory.write(to, from, bytes);
    poison_leave();
}

static void poison_copy(const struct memory_copy *list, size_t n)
{
    poison_enter();
    cpu_memory.copy(list, n);
    poison_leave();
}

static bool poison_store(const struct memory_store *list, size_t n)
{
    poison_enter();
    const bool fits = cpu_memory.store(list, n);
    poison_leave();
    return fits;
}

/* The kernel reads and writes the memory, too: while the requests are in flight. */
static void poison_file_read(struct async_file *file, struct async_ticket *ticket,
                             struct device_addr to, size_t offset, size_t bytes)
{
    poison_enter();
    cpu_memory.file_read(file, ticket, to, offset, bytes);
    while (ticket->pending)
        async_file_progress(file);
    poison_leave();
}

static void poison_file_write(struct async_file *file, struct async_ticket *ticket,
                              struct device_addr from, size_t offset, size_t bytes)
{
    poison_enter();
    cpu_memory.file_write(file, ticket, from, offset, bytes);
    while (ticket->pending)
        async_file_progress(file);
    poison_leave();
}

static const struct backend_memory poisoned_memory = {
    .name = "poisoned",
    .alloc = poison_alloc,
    .free = poison_free,
    .reserve = poison_reserve,
    .release = poison_release,
    .commit = poison_commit,
    .drop = poison_drop,
    .adopt = poison_adopt,
    .disown = poison_disown,
    .read = poison_read,
    .write = poison_write,
    .copy = poison_copy,
    .owns = poison_owns,
    .store = poison_store,
    .file_read = poison_file_read,
    .file_write = poison_file_write,
};

/* ---- operations ---- */

static int poison_open(struct backend_pass **pass, const struct backend_options *options,
                       struct err *err)
{
    poison_enter();
    const int rc = cpu_backend.open(pass, options, err);
    poison_leave();
    return rc;
}

static void poison_close(struct backend_pass *pass)
{
    poison_enter();
    cpu_backend.close(pass);
    poison_leave();
}

static int poison_begin(struct backend_pass *pass, const struct op_step *step, struct err *err)
{
    poison_enter();
    const int rc = cpu_backend.begin(pass, step, err);
    poison_leave();
    return rc;
}

static int poison_run(struct backend_pass *pass, const struct op *op, const struct op_step *step,
                      struct row_range rows, struct err *err)
{
    poison_enter();
    const int rc = cpu_backend.run(pass, op, step, rows, err);
    poison_leave();
    return rc;
}

static void poison_run_groups(struct backend_pass *pass, const struct op_groups *groups,
                              const struct op_step *step)
{
    poison_enter();
    cpu_backend.run_groups(pass, groups, step);
    poison_leave();
}

static void poison_replay(const struct state_replay *replay, const void *own)
{
    poison_enter();
    cpu_backend.replay(replay, own);
    poison_leave();
}

static void poison_fault(int signal, siginfo_t *info, void *context)
{
    static const char text[] = "not ok - tensor memory was used outside of the backend:\n";
    void *frame[32];
    (void)signal;
    (void)context;
    (void)info;
    if (write(STDOUT_FILENO, text, sizeof text - 1) > 0)
        backtrace_symbols_fd(frame, backtrace(frame, 32), STDOUT_FILENO);
    _exit(1);
}

/* The backend; reports faults from then on. */
static struct backend poisoned_backend(void)
{
    struct sigaction action = {.sa_sigaction = poison_fault, .sa_flags = SA_SIGINFO};
    void *frame[1];
    backtrace(frame, 1); /* loads what the handler needs */
    sigaction(SIGSEGV, &action, NULL);
    struct backend backend = cpu_backend;
    backend.name = "poisoned";
    backend.memory = &poisoned_memory;
    backend.in_process = false;
    backend.open = poison_open;
    backend.close = poison_close;
    backend.begin = poison_begin;
    backend.run = poison_run;
    backend.run_groups = poison_run_groups;
    backend.replay = poison_replay;
    return backend;
}

#endif
