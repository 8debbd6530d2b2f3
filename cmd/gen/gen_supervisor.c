/* Ends a rank that stays stopped (SIGSTOP), for which the other ranks would wait forever without
 * mpirun noticing. mpirun does the rest: it forwards signals, reports ranks that die and ends the
 * others.
 *
 * A child process polls the rank's state. It stays in the rank's process group, so that suspending
 * the whole run suspends and resumes both. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "gen/gen_ranks.h"

enum { POLL_MS = 100, STOPPED_MS = 3000, GRACE_MS = 800 };

static void sleep_ms(int ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL); }

/* True if /proc/PID/stat, "PID (NAME) STATE ..", has state T; in a debugger it is t. */
static bool is_stopped(pid_t pid)
{
    char path[40], stat[128];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, stat, sizeof stat - 1);
    if (fd >= 0)
        close(fd);
    stat[n > 0 ? n : 0] = 0;
    const char *name_end = strrchr(stat, ')');
    return name_end && strncmp(name_end, ") T", 3) == 0;
}

/* Polls the rank; the kernel kills this process when the rank ends. */
static _Noreturn void watch(pid_t rank, const char *program)
{
    int stopped_ms = 0;
    while (stopped_ms < STOPPED_MS) {
        sleep_ms(POLL_MS);
        stopped_ms = is_stopped(rank) ? stopped_ms + POLL_MS : 0;
    }
    ranks_say(program, "was stopped for 3 seconds");
    kill(rank, SIGTERM);
    kill(rank, SIGCONT);
    sleep_ms(GRACE_MS); /* lets the rank flush its output */
    kill(rank, SIGKILL);
    _exit(0);
}

void supervisor_begin(const char *program)
{
    const pid_t rank = getpid();
    sigset_t signals;
    if (fork() != 0)
        return; /* if fork() failed, the run is just not supervised */
    prctl(PR_SET_NAME, "bmc-supervisor");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != rank)
        _exit(0);
    sigfillset(&signals); /* signals are for the rank, except SIGTSTP, which suspends both */
    sigdelset(&signals, SIGTSTP);
    sigprocmask(SIG_SETMASK, &signals, NULL);
    watch(rank, program);
}
