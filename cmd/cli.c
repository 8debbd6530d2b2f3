/* Startup, errors, signals and input, common to all programs. */
#include "cli.h"

#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <sodium.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "attn/attn.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "kernel/blas/blas.h"
#include "kernel/gemm.h"
#include "model/model_pages.h"

volatile sig_atomic_t cli_interrupted;
bool cli_quiet;

static void on_terminate(int signal_number)
{
    file_remove_unfinished();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static volatile sig_atomic_t *interrupt_flag;

void cli_interrupt_to(volatile sig_atomic_t *flag) { interrupt_flag = flag; }

static void on_interrupt(int signal_number)
{
    if (interrupt_flag && signal_number == SIGINT) {
        *interrupt_flag = 1;
        return;
    }
    if (cli_interrupted)
        on_terminate(signal_number);
    __atomic_store_n(&cli_interrupted, signal_number, __ATOMIC_RELAXED); /* other threads read it */
}

/* Signals that end a program: SIGINT, SIGTERM and SIGHUP after the current work, the others at
 * once. Crashes are included, to remove temporary files, which may be gigabytes. */
static const struct {
    int number;
    void (*handler)(int);
} signals[] = {
    {SIGINT, on_interrupt},  {SIGTERM, on_interrupt},   {SIGHUP, on_interrupt},
    {SIGQUIT, on_terminate}, {SIGPIPE, on_terminate},   {SIGALRM, on_terminate},
    {SIGXCPU, on_terminate}, {SIGUSR1, on_terminate},   {SIGUSR2, on_terminate},
    {SIGPROF, on_terminate}, {SIGVTALRM, on_terminate}, {SIGABRT, on_terminate},
    {SIGSEGV, on_terminate}, {SIGFPE, on_terminate},    {SIGILL, on_terminate},
    {SIGSYS, on_terminate},  {SIGXFSZ, SIG_IGN},
};

static void set_action(int signal_number, struct sigaction *action)
{
    struct sigaction before;
    sigemptyset(&action->sa_mask);
    /* Signals that were ignored at start (nohup) stay ignored, and a sanitizer keeps its
     * handlers. */
    if (sigaction(signal_number, NULL, &before) == 0 && !(before.sa_flags & SA_SIGINFO) &&
        (before.sa_handler == SIG_DFL || before.sa_handler == on_interrupt ||
         before.sa_handler == on_terminate))
        sigaction(signal_number, action, NULL);
}

static void handle(int signal_number, void (*handler)(int))
{
    set_action(signal_number, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART});
}

int cli_last_words_fd = STDERR_FILENO;
static const char *program_name = "";

static struct iovec piece(const char *text)
{
    return (struct iovec){(void *)(uintptr_t)text, strlen(text)};
}

/* Reports a truncated mapped file and exits; other threads with that fault wait. */
static void lost_file(const char *name)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    const struct iovec line[] = {piece(program_name), piece(": "), piece(name),
                                 piece(": was truncated, or cannot be read any more, while it was in "
                                       "use; replace a file by renaming a complete one to its name\n")};
    while (atomic_flag_test_and_set(&said))
        pause();
    (void)!writev(cli_last_words_fd, line, ARRAY_LEN(line)); /* nothing else can be done */
    file_remove_unfinished();
    _exit(CLI_FAILED);
}

static void on_bus_error(int signal_number, siginfo_t *info, void *context)
{
    const char *name = info->si_code == BUS_ADRERR ? mapped_name(info->si_addr) : NULL;
    (void)context;
    if (name)
        lost_file(name);
    on_terminate(signal_number);
}

void cli_interrupt_ends(bool ends)
{
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        if (signals[i].handler == on_interrupt)
            handle(signals[i].number, ends ? on_terminate : on_interrupt);
}

/* Opens /dev/null for standard descriptors that are closed, so that no other file gets their
 * numbers. The open mode is the wrong one, so that using them fails as before. */
static void fill_standard(void)
{
    static const int way[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", way[fd]) != fd)
            _exit(CLI_FAILED); /* stderr may be closed, so nothing can be printed */
}

/* The main thread needs as much stack as kernels and nested inputs take; a smaller limit is raised where that is
 * permitted, else the program ends before it would crash. */
static int check_stack(struct err *err)
{
    enum { LEAST = 1 << 20 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) < 0 || limit.rlim_cur >= LEAST)
        return 0;
    const size_t given = limit.rlim_cur;
    limit.rlim_cur = LEAST;
    limit.rlim_max = limit.rlim_max < LEAST ? LEAST : limit.rlim_max;
    if (setrlimit(RLIMIT_STACK, &limit) == 0)
        return 0;
    return err_set(
        err, "the stack is limited to %zu KiB, %d are needed: raise the limit, as with ulimit -s 8192",
        given >> 10, LEAST >> 10);
}

void cli_begin(const char *program)
{
    struct err err;
    fill_standard();
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        handle(signals[i].number, signals[i].handler);
    program_name = program;
    set_action(SIGBUS, &(struct sigaction){.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO});
    file_stop_waiting(&cli_interrupted);
    atexit(file_remove_unfinished); /* a library may call exit() */
    if (check_stack(&err) < 0)
        exit(cli_fail(program, &err));
    if (sodium_init() < 0) {
        err_set(&err, "libsodium cannot be initialised");
        exit(cli_fail(program, &err));
    }
    kernels_setup();
}

int cli_fail(const char *program, const struct err *err)
{
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", program, err->text);
    return err->code == ERR_INVALID ? CLI_USAGE : CLI_FAILED;
}

void cli_say(FILE *to, const char *format, ...)
{
    char line[16384];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    const size_t len = strlen(line);
    text_make_printable(line, len && line[len - 1] == '\n' ? len - 1 : len, "");
    fputs(line, to);
}

int cli_put(const char *text, size_t len, struct err *err)
{
    static const char replacement[] = "\xEF\xBF\xBD";
    const size_t checked = isatty(STDOUT_FILENO) ? len : 0;
    size_t from = 0;
    for (size_t i = 0, step; i < checked; i += step) {
        if (!text_control_bytes(text + i, len - i, &step) || text[i] == '\n' || text[i] == '\t')
            continue;
        fwrite(text + from, 1, i - from, stdout);
        fputs(replacement, stdout);
        from = i + step;
    }
    if (len)
        fwrite(text + from, 1, len - from, stdout);
    return ferror(stdout) ? err_errno(err, "cannot write to standard output") : 0;
}

int cli_flush_stdout(const char *program)
{
    struct err err;
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) {
        /* Some file systems report errors only on close(). If standard output was closed from the
         * start, that is not an error. */
        const int copy = dup(STDOUT_FILENO);
        if (copy < 0 || close(copy) == 0)
            return 0;
    }
    if (errno == EPIPE) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    if (errno)
        err_errno(&err, "cannot write to standard output");
    else
        err_set(&err,
                /* an earlier write failed and its errno is lost */
                "cannot write to standard output");
    cli_fail(program, &err);
    return -1;
}

int cli_end(const char *program, int code)
{
    /* A failure has been reported already. */
    if (code == CLI_OK && cli_flush_stdout(program) < 0)
        code = CLI_FAILED;
    if (cli_interrupted) {
        file_remove_unfinished();
        signal(cli_interrupted, SIG_DFL);
        raise(cli_interrupted);
    }
    return code;
}

void cli_progress_begin(struct cli_progress *progress, const char *label)
{
    *progress = (struct cli_progress){
        .label = label, .percent = -1, .hidden = !isatty(STDERR_FILENO), .line_ms = clock_ms()};
}

void cli_progress(void *arg, size_t done, size_t total)
{
    enum { WIDTH = 40, LINE_MS = 10000 };
    struct cli_progress *progress = arg;
    const int percent = total ? (int)(100.0 * (double)done / (double)total) : 100;
    if (cli_quiet)
        return;
    if (progress->hidden && progress->lines && clock_ms() - progress->line_ms >= LINE_MS) {
        progress->line_ms = clock_ms();
        fprintf(stderr, "%s: %d %%\n", progress->label, percent);
    }
    if (progress->hidden || percent == progress->percent)
        return;
    progress->percent = percent;
    char bar[WIDTH + 1];
    memset(bar, ' ', WIDTH);
    memset(bar, '#', (size_t)(WIDTH * percent / 100));
    bar[WIDTH] = 0;
    fprintf(stderr, "\r%s [%s] %3d %%", progress->label, bar, percent);
    fflush(stderr);
}

void cli_progress_end(struct cli_progress *progress)
{
    if (!progress->hidden && progress->percent >= 0)
        fprintf(stderr, "\r\033[K");
    progress->percent = -1;
}

int cli_beside(const char *relative, char *path, size_t size, struct err *err)
{
    char program[4096];
    const ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
    if (len < 0)
        return err_errno(err, "/proc/self/exe: cannot find the program's folder");
    program[len] = 0;
    char *slash = strrchr(program, '/');
    if (slash)
        *slash = 0;
    snprintf(path, size, "%s/%s", program, relative);
    return 0;
}

int cli_models_dir(char *path, size_t size, struct err *err)
{
    static const char *const places[] = {"../models.d", "../share/bmc"};
    char program[8192];
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        if (cli_beside(places[i], path, size, err) < 0)
            return -1;
        if (file_is_folder(path))
            return 0;
    }
    if (cli_beside("", program, sizeof program, err) < 0)
        return -1;
    return err_set(err,
                   "no model data beside the program: neither %s../models.d nor %s../share/bmc exists",
                   program, program);
}

int cli_default_model(const char *name, const char *option, char *path, size_t size, struct err *err)
{
    char folder[8192];
    if (cli_models_dir(folder, sizeof folder, err) < 0)
        return err_prefix(err, "no %s given", option);
    const int len = snprintf(path, size, "%s/%s.bmc", folder, name);
    if (len < 0 || (size_t)len >= size || !file_exists(path))
        return err_set(
            err, "no %s given, and the default model %s/%s.bmc is not there; \"make\" converts it",
            option, folder, name);
    return 0;
}

void cli_time(time_t at, char text[CLI_TIME])
{
    struct tm utc;
    if (!gmtime_r(&at, &utc) || !strftime(text, CLI_TIME, "%Y-%m-%dT%H:%M:%SZ", &utc))
        *text = 0;
}

bool cli_readable(int fd)
{
    struct pollfd input = {.fd = fd, .events = POLLIN};
    return poll(&input, 1, 0) != 0;
}

bool cli_wait(int fd)
{
    struct pollfd input = {.fd = fd, .events = POLLIN};
    sigset_t interrupt, before;
    sigemptyset(&interrupt);
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        if (signals[i].handler == on_interrupt)
            sigaddset(&interrupt, signals[i].number);
    /* Blocks these signals except during ppoll(), which they end; read() alone would be restarted
     * and go on waiting. */
    sigprocmask(SIG_BLOCK, &interrupt, &before);
    const bool stopped = cli_interrupted || (interrupt_flag && *interrupt_flag);
    const bool ready = !stopped && (ppoll(&input, 1, NULL, &before) >= 0 || errno != EINTR);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ready;
}

ssize_t cli_read(int fd, void *bytes, size_t size)
{
    ssize_t n;
    do {
        while (!cli_wait(fd))
            if (cli_interrupted || (interrupt_flag && *interrupt_flag))
                return 0;
        n = read(fd, bytes, size);
    } while (n < 0 && errno == EINTR);
    return n;
}

int cli_open(const char *path)
{
    if (strcmp(path, "-") == 0)
        return STDIN_FILENO;
    /* O_NONBLOCK: open() would wait for a FIFO's writer; cli_read() does that instead, and signals
     * end its wait. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0)
        fcntl(fd, F_SETFL, 0);
    return fd;
}

/* True for a regular file that exceeds CLI_TEXT_BYTES, before reading it. */
static bool is_too_long(int fd, const struct buf *text)
{
    struct stat st;
    return text->len > CLI_TEXT_BYTES ||
           (!text->len && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > CLI_TEXT_BYTES);
}

int cli_read_all(const char *path, struct buf *text, struct err *err)
{
    enum { BLOCK = 1 << 16 };
    const int fd = cli_open(path);
    const bool standard = fd == STDIN_FILENO;
    const char *name = standard ? "standard input" : path;
    if (fd < 0)
        return err_errno(err, "%s: cannot open", path);
    int rc = 0;
    for (;;) {
        if (is_too_long(fd, text))
            rc = err_set(err, "%s: is longer than %d MiB: give a part of it at a time", name,
                         CLI_TEXT_BYTES >> 20);
        if (rc < 0 || (rc = buf_reserve(text, BLOCK, err)) < 0)
            break;
        const ssize_t n = cli_read(fd, text->data + text->len, BLOCK);
        if (n < 0)
            rc = err_errno(err, "%s: cannot read", name);
        if (n <= 0)
            break;
        text->len += (size_t)n;
    }
    if (text->data)
        text->data[text->len] = 0;
    if (!standard)
        close(fd);
    return rc;
}

enum { MORE_LIBRARIES = 4 };

static struct {
    const char *name;
    const char *(*version)(void);
} more_libraries[MORE_LIBRARIES];
static size_t n_more_libraries;

void cli_uses(const char *library, const char *(*version)(void))
{
    if (n_more_libraries == MORE_LIBRARIES)
        return;
    more_libraries[n_more_libraries].name = library;
    more_libraries[n_more_libraries++].version = version;
}

#ifdef __clang__
#define BMC_COMPILER "clang " __clang_version__
#else
#define BMC_COMPILER "gcc " __VERSION__
#endif

/* BMC_RELEASE and BMC_FLAGS come from the Makefile. */
void cli_print_version(const char *program, const struct kernels *kernels, const char *from,
                       const struct err *err)
{
    char openblas[PATH_MAX], onednn[32] = "(not installed)";
    printf("%s %s\n", program, BMC_RELEASE);
    if (*cli_commit)
        printf("commit:    %s\n", cli_commit);
    printf("compiler:  %s\n", BMC_COMPILER);
    printf("flags:     %s\n", BMC_FLAGS);
    blas_file(openblas, sizeof openblas);
    (void)onednn_version(onednn, sizeof onednn);
    printf("libraries: libsodium %s; jansson %s", sodium_version_string(), jansson_version_str());
    for (size_t i = 0; i < n_more_libraries; i++)
        printf("; %s %s", more_libraries[i].name, more_libraries[i].version());
    printf("; for onednn oneDNN %s; for blas OpenBLAS, %s\n", onednn, openblas);
    printf("isa:       %s; usable:", kernels ? kernels->isa : err->text);
    const char *comma = "";
    for (size_t i = 0; kernel_sets[i]; i++) {
        if (!kernel_sets[i]->usable())
            continue;
        printf("%s %s", comma, kernel_sets[i]->isa);
        comma = ",";
    }
    putchar('\n');
    if (kernels)
        printf("default:   isa %s (%s), precision f32; %s for bf16 weights; "
               "int8 for quantised weights and caches\n",
               kernels->isa, from, precision_name(precision_default(kernels, WEIGHTS_BF16, NULL)));
}

int cli_use_pages(const char *program, const struct model *model, const struct pages_options *options,
                  struct err *err)
{
    static bool noted; /* a draft model comes second */
    bool one_node;
    const int rc = model_use_pages(model, options, &one_node, err);
    if (one_node && !noted)
        cli_say(stderr,
                "%s: note: this process may use cores of one NUMA node only: --numa changes nothing\n",
                program);
    noted = noted || one_node;
    return rc;
}
