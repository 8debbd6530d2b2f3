/* Programs in a sandbox: starting them under bubblewrap, or Landlock and seccomp, and exchanging their input and output. */
#include "chat/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text_util.h"
#include "chat/sandbox_filter.h"

/* What programs may read and run, besides the folder of their own. */
static const char *const readable[] = {
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/passwd",
    "/etc/group",
};

static const char *const devices[] = {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"};

/* Descriptors of a program that is being started: after the standard ones, where it reports why it cannot be; bubblewrap
 * reads the filter from the other. */
enum { REPORT_FD = 3, FILTER_FD = 4, FIRST_CLOSED = 5 };

/* A program that is being started. The child only makes system calls. */
struct start {
    char *const *argv, *const *env;
    const char *path, *cwd; /* cwd NULL: bubblewrap sets it */
    int ruleset;            /* of Landlock; -1: none */
    struct sandbox_filter filter;
    int filter_fd; /* -1: the filter is installed before the program starts */
};

/* ---- Landlock, by its system calls: headers may be older than the kernel ---- */

enum {
    FS_ABI_1 = (1 << 13) - 1, /* all rights of files and folders, of the first version */
    FS_REFER = 1 << 13,
    FS_TRUNCATE = 1 << 14,
    FS_IOCTL_DEV = 1 << 15,
    FS_READ = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR,
    FS_DEVICE = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE,
    /* in /tmp: no devices, sockets and pipes */
    FS_WRITE = FS_READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
               LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |
               LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SYM | FS_TRUNCATE,
    FS_FILES = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE |
               LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE, /* rights that files have, too */
    NET_TCP = 3,
    SCOPES = 3, /* abstract sockets, signals */
};

struct ruleset {
    uint64_t fs, net, scoped;
};

static long landlock_version(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

/* The rights that a version of Landlock knows. */
static struct ruleset rights_of(long version)
{
    return (struct ruleset){
        .fs = FS_ABI_1 | (version >= 2 ? FS_REFER : 0) | (version >= 3 ? FS_TRUNCATE : 0) |
              (version >= 5 ? FS_IOCTL_DEV : 0),
        .net = version >= 4 ? NET_TCP : 0,
        .scoped = version >= 6 ? SCOPES : 0,
    };
}

/* Allows access to a path, unless it does not exist. */
static int allow_path(int ruleset, const char *path, uint64_t access, struct err *err)
{
    const int fd = open(path, O_PATH | O_CLOEXEC);
    struct stat st;
    if (fd < 0)
        return errno == ENOENT ? 0 : err_errno(err, "cannot open %s", path);
    if (fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
        access &= FS_FILES;
    const struct landlock_path_beneath_attr rule = {access, fd};
    const long rc = syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    close(fd);
    return rc < 0 ? err_errno(err, "Landlock refuses %s", path) : 0;
}

/* Makes the ruleset: a descriptor, or -1. */
static int make_ruleset(const struct sandbox *s, const char *scratch, struct err *err)
{
    const long version = landlock_version();
    const struct ruleset rights = rights_of(version);
    const size_t size = version >= 6 ? 24 : version >= 4 ? 16 : 8;
    const int fd = (int)syscall(SYS_landlock_create_ruleset, &rights, size, 0);
    if (fd < 0)
        return err_errno(err, "Landlock is not there");
    int rc = allow_path(fd, s->folder, rights.fs & FS_READ, err);
    for (size_t i = 0; i < ARRAY_LEN(readable) && rc == 0; i++)
        rc = allow_path(fd, readable[i], rights.fs & FS_READ, err);
    for (size_t i = 0; i < ARRAY_LEN(devices) && rc == 0; i++)
        rc = allow_path(fd, devices[i], rights.fs & FS_DEVICE, err);
    if (rc == 0)
        rc = allow_path(fd, scratch, rights.fs & FS_WRITE, err);
    if (rc == 0)
        return fd;
    close(fd);
    return -1;
}

/* ---- the child ---- */

static void set_limits(void)
{
    static const struct {
        int resource;
        rlim_t most;
    } limits[] = {{RLIMIT_CPU, SANDBOX_SECONDS},
                  {RLIMIT_AS, (rlim_t)SANDBOX_MEMORY_MIB << 20},
                  {RLIMIT_FSIZE, (rlim_t)SANDBOX_FILE_MIB << 20},
                  {RLIMIT_NOFILE, 64},
                  {RLIMIT_CORE, 0},
                  {RLIMIT_MEMLOCK, 0}};
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        const struct rlimit limit = {limits[i].most, limits[i].most};
        (void)setrlimit((__rlimit_resource_t)limits[i].resource, &limit);
    }
}

/* Gives up capabilities, which root has. */
static int drop_capabilities(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    const struct __user_cap_data_struct none[2] = {{0}};
    return (int)syscall(SYS_capset, &head, none);
}

static int restrict_self(struct start *start)
{
    const struct sock_fprog program = {start->filter.n, start->filter.code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || drop_capabilities() < 0 ||
                   chdir(start->cwd) < 0 ||
                   syscall(SYS_landlock_restrict_self, start->ruleset, 0) < 0 ||
                   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0
               ? -1
               : 0;
}

/* In the child: becomes the program, or reports errno. fd: its standard input, output and error, and the report. */
static _Noreturn void become(struct start *start, const int fd[4])
{
    enum { SPARE = 200 }; /* descriptors are moved above those that they replace */
    int moved[FIRST_CLOSED];
    const sigset_t none = {0};
    (void)setsid();
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 1; i < NSIG; i++)
        (void)signal(i, SIG_DFL);
    for (int i = 0; i < FIRST_CLOSED; i++) {
        const int from = i < 4 ? fd[i] : start->filter_fd >= 0 ? start->filter_fd : start->ruleset;
        moved[i] = fcntl(from, F_DUPFD, SPARE);
    }
    for (int i = 0; i < FIRST_CLOSED; i++)
        (void)dup2(moved[i], i);
    (void)fcntl(REPORT_FD, F_SETFD, FD_CLOEXEC);
    (void)syscall(SYS_close_range, FIRST_CLOSED, ~0U, 0);
    start->ruleset = FILTER_FD;
    if (start->filter_fd < 0)
        (void)fcntl(FILTER_FD, F_SETFD, FD_CLOEXEC);
    set_limits();
    if (start->filter_fd >= 0 || restrict_self(start) == 0)
        execve(start->path, start->argv, start->env);
    const int why = errno;
    (void)!write(REPORT_FD, &why, sizeof why);
    _exit(127);
}

/* ---- the parent ---- */

static void close_all(int *fd, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fd[i] >= 0)
            close(fd[i]);
        fd[i] = -1;
    }
}

/* Reads what a descriptor has. At its end, and once there is more than SANDBOX_OUTPUT bytes, it is closed. */
static int take_output(int *fd, struct buf *out, bool *cut, struct err *err)
{
    char bytes[4096];
    const ssize_t got = read(*fd, bytes, sizeof bytes);
    const size_t space = SANDBOX_OUTPUT - out->len;
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (got <= 0) {
        close_all(fd, 1);
        return 0;
    }
    *cut |= (size_t)got > space;
    return buf_add(out, bytes, size_min((size_t)got, space), err);
}

/* A program that runs: its ends of pipes, and what of the input is to be written. */
struct running {
    pid_t pid;
    int in, out, error;
    const char *input;
    size_t left;
    double until_ms;
};

static void give_input(struct running *r)
{
    const ssize_t put = write(r->in, r->input, r->left);
    if (put < 0 && errno != EINTR && errno != EAGAIN)
        r->left = 0;
    if (put > 0) {
        r->input += put;
        r->left -= (size_t)put;
    }
    if (!r->left)
        close_all(&r->in, 1);
}

static bool has_ended(const struct running *r)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOWAIT | WNOHANG) < 0 || info.si_pid;
}

/* Exchanges input and output until the program has ended, and all that it wrote is read, or a limit is reached. Processes
 * that it leaves behind may still have its output open. */
static int exchange(struct running *r, struct sandbox_result *result, struct err *err)
{
    enum { PAUSE_MS = 20 };
    int rc = 0;
    if (!r->left)
        close_all(&r->in, 1);
    while (rc == 0 && !result->cut && !result->late) {
        struct pollfd polled[] = {{r->in, POLLOUT, 0}, {r->out, POLLIN, 0}, {r->error, POLLIN, 0}};
        const bool ended = has_ended(r);
        const int ready = poll(polled, ARRAY_LEN(polled), ended ? 0 : PAUSE_MS);
        if (ready < 0 && errno != EINTR)
            return err_errno(err, "cannot wait for a program");
        if (ended && ready <= 0)
            break;
        if (ready > 0 && polled[0].revents)
            give_input(r);
        if (ready > 0 && polled[1].revents)
            rc = take_output(&r->out, &result->out, &result->cut, err);
        if (ready > 0 && polled[2].revents && rc == 0)
            rc = take_output(&r->error, &result->error, &result->cut, err);
        result->late = clock_ms() > r->until_ms;
    }
    return rc;
}

/* Ends what is left of the program's processes, its group. */
static void end_program(struct running *r, struct sandbox_result *result)
{
    int status;
    kill(-r->pid, SIGKILL);
    while (waitpid(r->pid, &status, 0) < 0 && errno == EINTR)
        ;
    result->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    close_all((int[]){r->in, r->out, r->error}, 3);
}

/* Starts the program: -1 if it cannot be. */
static int start_program(struct start *start, struct running *r, struct err *err)
{
    int pipes[8], why = 0;
    ssize_t got = 0;
    memset(pipes, -1, sizeof pipes);
    for (size_t i = 0; i < 8; i += 2)
        if (pipe2(pipes + i, O_CLOEXEC) < 0) {
            close_all(pipes, 8);
            return err_errno(err, "cannot start a program");
        }
    r->pid = fork();
    if (r->pid == 0)
        become(start, (int[]){pipes[0], pipes[3], pipes[5], pipes[7]});
    if (r->pid < 0) {
        close_all(pipes, 8);
        return err_errno(err, "cannot start a program");
    }
    close_all((int[]){pipes[0], pipes[3], pipes[5], pipes[7]}, 4);
    while ((got = read(pipes[6], &why, sizeof why)) < 0 && errno == EINTR)
        ;
    close_all(&pipes[6], 1);
    r->in = pipes[1];
    r->out = pipes[2];
    r->error = pipes[4];
    (void)fcntl(r->in, F_SETFL, O_NONBLOCK);
    if (got != sizeof why)
        return 0;
    struct sandbox_result ignored = {0};
    end_program(r, &ignored);
    errno = why;
    return err_errno(err, "cannot run %s in the sandbox", start->argv[0]);
}

static int run(struct start *start, double seconds, const char *input, size_t len,
               struct sandbox_result *result, struct err *err)
{
    struct running r = {.input = input, .left = len, .until_ms = clock_ms() + 1e3 * seconds};
    if (start_program(start, &r, err) < 0)
        return -1;
    const int rc = exchange(&r, result, err);
    end_program(&r, result);
    return rc;
}

/* ---- by Landlock ---- */

/* Sets the path of a program. */
static int find_program(const struct sandbox *s, const char *name, char *path, size_t size,
                        struct err *err)
{
    static const char *const folders[] = {"/usr/local/bin", "/usr/bin", "/bin"};
    const char *slash = strchr(name, '/');
    if (slash) {
        snprintf(path, size, "%s%s%s", *name == '/' ? "" : s->folder, *name == '/' ? "" : "/", name);
        if (access(path, X_OK) == 0)
            return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(folders) && !slash; i++) {
        snprintf(path, size, "%s/%s", folders[i], name);
        if (access(path, X_OK) == 0)
            return 0;
    }
    return err_set(err, "there is no program \"%s\" in %s", excerpt_of(name, strlen(name)).text,
                   slash ? s->folder : "/usr/local/bin, /usr/bin and /bin");
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path), 0;
}

static int run_by_landlock(const struct sandbox *s, struct start *start, const char *input, size_t len,
                           struct sandbox_result *result, struct err *err)
{
    char scratch[] = "/tmp/bmc-tool-XXXXXX", home[64], tmp[64];
    char *env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", home, tmp, NULL};
    if (!mkdtemp(scratch))
        return err_errno(err, "cannot make a folder in /tmp");
    snprintf(home, sizeof home, "HOME=%s", scratch);
    snprintf(tmp, sizeof tmp, "TMPDIR=%s", scratch);
    start->env = env;
    start->cwd = scratch;
    start->filter_fd = -1;
    start->ruleset = make_ruleset(s, scratch, err);
    const int rc = start->ruleset < 0 ? -1 : run(start, s->seconds, input, len, result, err);
    close_all(&start->ruleset, 1);
    nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return rc;
}

/* ---- by bubblewrap ---- */

enum { BWRAP_WORDS = 128 };

struct bwrap_words {
    char *word[BWRAP_WORDS];
    size_t n;
};

static void add_words(struct bwrap_words *w, const char *const *list)
{
    for (; *list && w->n < BWRAP_WORDS - 1; list++)
        w->word[w->n++] = (char *)(uintptr_t)*list;
}

#define ADD_WORDS(w, ...) add_words(w, (const char *const[]){__VA_ARGS__, NULL})

/* A descriptor with the filter, as bubblewrap reads it. */
static int filter_file(const struct sandbox_filter *filter, struct err *err)
{
    const size_t size = filter->n * sizeof filter->code[0];
    const int fd = memfd_create("filter", MFD_CLOEXEC);
    if (fd >= 0 && write(fd, filter->code, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0)
        return fd;
    err_errno(err, "cannot store a filter of system calls");
    if (fd >= 0)
        close(fd);
    return -1;
}

static int run_by_bwrap(const struct sandbox *s, struct start *start, const char *input, size_t len,
                        struct sandbox_result *result, struct err *err)
{
    char *env[] = {NULL}, scratch[24];
    struct bwrap_words w = {.n = 0};
    snprintf(scratch, sizeof scratch, "%d", SANDBOX_FILE_MIB << 20);
    ADD_WORDS(&w, "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
              "--seccomp", TEXT_OF(4), "--clearenv", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin",
              "--setenv", "LC_ALL", "C.UTF-8", "--setenv", "HOME", "/tmp", "--setenv", "TMPDIR", "/tmp",
              "--size", scratch, "--tmpfs", "/tmp", "--chdir", "/tmp");
    for (size_t i = 0; i < ARRAY_LEN(readable); i++)
        ADD_WORDS(&w, "--ro-bind-try", readable[i], readable[i]);
    for (size_t i = 0; i < ARRAY_LEN(devices); i++)
        ADD_WORDS(&w, "--dev-bind-try", devices[i], devices[i]);
    ADD_WORDS(&w, "--ro-bind", s->folder, s->folder, "--remount-ro", "/", "--", start->path);
    for (size_t i = 1; start->argv[i]; i++) {
        if (w.n == BWRAP_WORDS - 1)
            return err_set(err, "the command has too many words");
        w.word[w.n++] = start->argv[i];
    }
    start->argv = w.word;
    start->env = env;
    start->path = s->bwrap;
    start->ruleset = -1;
    start->filter_fd = filter_file(&start->filter, err);
    const int rc = start->filter_fd < 0 ? -1 : run(start, s->seconds, input, len, result, err);
    close_all(&start->filter_fd, 1);
    return rc;
}

/* ---- both ---- */

int sandbox_run(const struct sandbox *s, char *const *argv, const char *input, size_t len,
                struct sandbox_result *result, struct err *err)
{
    char path[4096];
    struct start start = {.argv = argv, .path = path};
    *result = (struct sandbox_result){0};
    sandbox_filter_make(&start.filter);
    if (find_program(s, argv[0], path, sizeof path, err) < 0)
        return -1;
    return (*s->bwrap ? run_by_bwrap : run_by_landlock)(s, &start, input, len, result, err);
}

/* True if a program runs in the sandbox. */
static bool works(const struct sandbox *s, struct err *why)
{
    char *const argv[] = {"true", NULL};
    struct sandbox_result result;
    const int rc = sandbox_run(s, argv, "", 0, &result, why);
    if (rc == 0 && result.status != 0)
        err_set(why, "%s", excerpt_of(buf_text(&result.error), result.error.len).text);
    buf_release(&result.out);
    buf_release(&result.error);
    return rc == 0 && result.status == 0;
}

int sandbox_open(struct sandbox *s, const char *folder, struct err *err)
{
    static const char *const bwraps[] = {"/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap"};
    struct sandbox_filter filter;
    struct err why;
    *s = (struct sandbox){.folder = folder, .seconds = SANDBOX_SECONDS};
    sandbox_filter_make(&filter);
    if (!filter.n)
        return err_set(err,
                       "there is no sandbox for programs on this architecture: leave --run-tools out");
    for (size_t i = 0; i < ARRAY_LEN(bwraps); i++) {
        snprintf(s->bwrap, sizeof s->bwrap, "%s", bwraps[i]);
        if (access(s->bwrap, X_OK) == 0 && works(s, &why))
            return 0;
    }
    s->bwrap[0] = 0;
    if (works(s, &why))
        return 0;
    return err_set(err,
                   "programs have no sandbox here, and do not run without one: install bubblewrap, or "
                   "use a kernel "
                   "with Landlock (%s)",
                   why.text);
}
