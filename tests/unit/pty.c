/* Runs a program at a pseudo-terminal, and plays its user.
 *
 *   pty COMMAND [ARGUMENT ..] <SCRIPT
 *
 * Lines of the script: "wait TEXT" waits until the program has printed TEXT behind what earlier waits
 * have found; "type TEXT" types a line and Return, "keys TEXT" without Return, with C escapes \r \n \e \t
 * \xHH; "size COLUMNS ROWS" resizes the terminal; "stop" presses Ctrl-C; "end" presses Ctrl-D; "hang up"
 * closes the terminal. At the end of the script the driver waits for the program to end. It prints all
 * that the program printed, and exits with the program's status, 128 + N after signal N; 99 if a wait, or the
 * end, took a minute. */
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PRINTED = 1 << 22, LINE = 1 << 16, WAIT_MS = 60000, AGAIN_MS = 2000, FAILED = 99 };

static char printed[PRINTED + 1];
static size_t n_printed, seen;
static int terminal;
static int ended; /* Ctrl-D was pressed last */

static int finish(int status)
{
    fwrite(printed, 1, n_printed, stdout);
    fflush(stdout);
    return status;
}

static void fail(const char *what, const char *text)
{
    fprintf(stderr, "pty: %s: %s", what, text);
    exit(finish(FAILED));
}

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Reads what the program prints, which must do it before `deadline`; false: it has closed the terminal. */
static int read_more(const char *why, long long deadline)
{
    struct pollfd input = {.fd = terminal, .events = POLLIN};
    while (now_ms() > deadline || poll(&input, 1, AGAIN_MS) <= 0) {
        if (now_ms() > deadline)
            fail("waited in vain", why);
        /* The terminal drops what comes between the prompt and its raw mode. */
        if (ended && write(terminal, "\x04", 1) < 0)
            fail("cannot type", why);
    }
    const ssize_t n = read(terminal, printed + n_printed, PRINTED - n_printed);
    if (n <= 0)
        return 0;
    n_printed += (size_t)n;
    return 1;
}

static void wait_for(const char *text)
{
    const size_t len = strlen(text);
    const long long deadline = now_ms() + WAIT_MS;
    const char *at;
    while (!(at = memmem(printed + seen, n_printed - seen, text, len)))
        if (!read_more(text, deadline))
            fail("the program ended before", text);
    seen = (size_t)(at - printed) + len;
}

static void type(const char *text, size_t len)
{
    while (len) {
        const ssize_t n = write(terminal, text, len);
        if (n <= 0)
            fail("cannot type", text);
        text += n;
        len -= (size_t)n;
    }
}

/* Replaces escapes in place, and returns the length. */
static size_t unescape(char *text)
{
    static const char from[] = "rnet\\", to[] = "\r\n\x1b\t\\";
    char *out = text;
    for (const char *at = text; *at;) {
        const char *known = at[0] == '\\' && at[1] ? strchr(from, at[1]) : NULL;
        unsigned byte;
        if (known) {
            *out++ = to[known - from];
            at += 2;
        } else if (sscanf(at, "\\x%2x", &byte) == 1) {
            *out++ = (char)byte;
            at += 4;
        } else {
            *out++ = *at++;
        }
    }
    *out = 0;
    return (size_t)(out - text);
}

static void resize(const char *text)
{
    struct winsize size = {0};
    if (sscanf(text, "%hu %hu", &size.ws_col, &size.ws_row) != 2 ||
        ioctl(terminal, TIOCSWINSZ, &size) < 0)
        fail("cannot resize", text);
}

/* Waits for the program to end, at most as long as for a text. */
static int await_end(pid_t child)
{
    enum { EVERY_MS = 20 };
    int status;
    for (int waited = 0; waitpid(child, &status, WNOHANG) == 0; waited += EVERY_MS) {
        if (waited >= WAIT_MS) {
            kill(child, SIGKILL);
            fail("waited in vain", "the end\n");
        }
        poll(NULL, 0, EVERY_MS);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Carries out a line; false: the terminal is closed. */
static int play(char *line)
{
    char *rest = strchr(line, ' ');
    const char *text = rest ? rest + 1 : "";
    ended = strcmp(line, "end") == 0;
    if (strncmp(line, "wait ", 5) == 0)
        wait_for(text);
    else if (strncmp(line, "type ", 5) == 0 || strcmp(line, "type") == 0)
        type(text, strlen(text)), type("\r", 1);
    else if (strncmp(line, "keys ", 5) == 0)
        type(text, unescape(rest + 1));
    else if (strncmp(line, "size ", 5) == 0)
        resize(text);
    else if (strcmp(line, "stop") == 0)
        type("\x03", 1);
    else if (ended)
        type("\x04", 1);
    else if (strcmp(line, "hang up") == 0)
        return close(terminal), 0;
    else
        fail("what is this", line);
    return 1;
}

int main(int argc, char **argv)
{
    static char line[LINE];
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    int open = 1;
    if (argc < 2)
        fail("usage", "pty COMMAND [ARGUMENT ..] <SCRIPT");
    const pid_t child = forkpty(&terminal, NULL, NULL, &size);
    if (child < 0)
        fail("no pseudo-terminal", strerror(errno));
    if (child == 0) {
        signal(SIGINT, SIG_DFL); /* also where the tests run in the background of a script, */
        signal(SIGHUP, SIG_DFL); /* or under nohup */
        execvp(argv[1], argv + 1);
        _exit(127);
    }
    while (open && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        open = play(line);
    }
    const long long deadline = now_ms() + WAIT_MS;
    while (open && read_more("the end", deadline))
        ;
    return finish(await_end(child));
}
