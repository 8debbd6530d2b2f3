/* Watches over a rank: the process that a launcher has started waits here for its child, which does the work. However the child ends,
 * somebody is left who can tell, and the launcher sees an end that makes it end the other ranks. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "gen_ranks.h"

/* Who is stopped for longer ends the run, and has this time then to write what there is. */
enum { STOPPED_MS = 3000, LAST_MS = 800, LOOK_MS = 50 };

static volatile sig_atomic_t child, passed_on;
static pid_t guard;

static void pass_on(int signal_number)
{
    if (signal_number != SIGCONT)
        passed_on = signal_number;
    kill(child, signal_number);
}

/* The child is in a group of its own, so that a signal to ours reaches it once, and through us. */
static void pass_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT};
    struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        sigaction(signals[i], &action, NULL);
}

/* The child's next change of state, if it comes in time. */
static bool changes(int *status, int ms)
{
    for (; ms > 0; ms -= LOOK_MS) {
        if (waitpid(child, status, WUNTRACED | WCONTINUED | WNOHANG) > 0)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
    return false;
}

static bool is_end(int status) { return WIFEXITED(status) || WIFSIGNALED(status); }

/* Goes on with a child that was stopped, to its end. */
static void end_child(int *status)
{
    kill(child, SIGTERM);
    kill(child, SIGCONT);
    for (int ms = 0; ms < LAST_MS; ms += LOOK_MS) {
        if (waitpid(child, status, WNOHANG) == child)
            return;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, status, 0);
}

/* Waits for the child's end; false: it was stopped for too long, and is ended. */
static bool ends(int *status)
{
    for (;;) {
        if (waitpid(child, status, WUNTRACED) != child)
            continue;               /* a signal came */
        while (WIFSTOPPED(*status)) /* it may be stopped anew between two looks */
            if (!changes(status, STOPPED_MS)) {
                end_child(status);
                return false;
            }
        if (is_end(*status))
            return true;
    }
}

/* The child ended by a signal; one that came through us ends us, too. */
static int tell_signal(const char *program, int number)
{
    char sentence[160];
    if (number == passed_on) {
        signal(number, SIG_DFL);
        raise(number);
    }
    snprintf(sentence, sizeof sentence, "was ended by signal %d (%s)%s", number, strsignal(number),
             number == SIGKILL ? ", as the system does when memory runs out" : "");
    ranks_say(program, sentence);
    return CLI_FAILED;
}

static int watch(const char *program)
{
    int status;
    if (!ends(&status)) {
        ranks_say(program, "was stopped for 3 seconds");
        return CLI_FAILED;
    }
    return WIFSIGNALED(status) ? tell_signal(program, WTERMSIG(status)) : WEXITSTATUS(status);
}

void guard_begin(const char *program)
{
    sigset_t all, before;
    guard = getpid();
    signal(SIGCHLD, SIG_DFL); /* who has inherited that it is ignored cannot wait for a child */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before); /* none comes before there is somebody to pass it to */
    child = fork();
    if (child > 0)
        pass_signals();
    else {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (child > 0) {
        prctl(PR_SET_NAME, "bmc-guard");
        _exit(watch(program));
    }
    if (child == 0 && getppid() != guard)
        _exit(CLI_FAILED);
}

void guard_end(void)
{
    if (guard && child == 0)
        kill(guard, SIGCONT);
}
