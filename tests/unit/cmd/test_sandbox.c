/* The sandbox for programs that a model asks for: input and output pass unchanged, and nothing else does.
 *
 *   test_sandbox FOLDER    with a sub-folder of this name that programs may read */
#include "chat/sandbox.h"

#include <string.h>

#include "base/clock.h"
#include "tests/unit/check.h"

static struct sandbox sandbox;

/* Runs a shell command; its standard output is in `result`. */
static bool run_shell(const char *script, const char *input, struct sandbox_result *result)
{
    char *const argv[] = {"sh", "-c", (char *)(uintptr_t)script, NULL};
    struct err err;
    return check(sandbox_run(&sandbox, argv, input, strlen(input), result, &err) == 0, "%s: %s", script,
                 err.text);
}

static void release(struct sandbox_result *result)
{
    buf_release(&result->out);
    buf_release(&result->error);
}

/* A command that must fail, or print nothing but "no". */
static void refuses(const char *script)
{
    struct sandbox_result result;
    if (run_shell(script, "", &result))
        check(result.status != 0 && result.out.len == 0, "%s succeeds: %s", script,
              buf_text(&result.out));
    release(&result);
}

static void prints(const char *script, const char *input, const char *expected)
{
    struct sandbox_result result;
    if (run_shell(script, input, &result))
        check(result.status == 0 && strcmp(buf_text(&result.out), expected) == 0,
              "%s: status %d, \"%s\" \"%s\"", script, result.status, buf_text(&result.out),
              buf_text(&result.error));
    release(&result);
}

/* Input and output, and what a program needs: its folder, a shell, an empty /tmp that it can write to. */
static void test_uses(const char *folder)
{
    static const char text[] = "{\"a\":\"\\\"q\\\" \\n 日本 😀\"}";
    char script[4200];
    prints("cat", text, text);
    prints("echo x >\"$HOME/file\" && cat \"$HOME/file\" && rm \"$HOME/file\" && test ! -e "
           "\"$TMPDIR/file\"",
           "", "x\n");
    prints("pwd | grep -c '^/tmp'", "", "1\n");
    prints("env | cut -d= -f1 | sort | tr '\\n' ' '", "", "HOME LC_ALL PATH PWD TMPDIR ");
    snprintf(script, sizeof script, "cat %s/readable", folder);
    prints(script, "", "yes\n");
}

/* What it must not reach. */
static void test_refusals(const char *folder)
{
    static const char *const scripts[] = {
        "cat /etc/shadow",
        "cat /etc/hostname",
        "ls /root",
        "ls /home",
        "ls /proc/1",
        "echo >/usr/x",

        "echo >/dev/tty",
        "kill -0 $PPID",
        "unshare -r true",
        "mount -t tmpfs none /mnt",
        "setsid true",
        "ip link",
        "ulimit -f unlimited",
        "chmod 777 .",
        "cat /proc/self/environ",
        "perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 0) or exit 1'",
        "perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0) or exit 1'",
        "perl -e 'exit 1 unless syscall(425, 8, 0) > 0'", /* io_uring_setup */
    };
    char script[4200];
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++)
        refuses(scripts[i]);
    snprintf(script, sizeof script, "echo >%s/new", folder);
    refuses(script);
    snprintf(script, sizeof script, "cat %s/../secret", folder);
    refuses(script);
    snprintf(script, sizeof script,
             "perl -e 'open(F, \"<\", \"%s/readable\"); truncate(F, 0) or exit 1'", folder);
    refuses(script);
    snprintf(script, sizeof script,
             "perl -MFcntl -e 'sysopen(F, \"%s/readable\", O_RDONLY | O_TRUNC) or exit 1'", folder);
    refuses(script);
    snprintf(script, sizeof script, "cat %s/readable", folder);
    prints(script, "", "yes\n");
}

static void test_limits(void)
{
    struct sandbox_result result;
    const double begun = clock_ms();
    if (run_shell("yes", "", &result))
        check(result.cut && result.out.len == SANDBOX_OUTPUT, "endless output: %zu bytes",
              result.out.len);
    release(&result);
    if (run_shell("echo a; echo b >&2; exit 3", "", &result))
        check(result.status == 3 && strcmp(buf_text(&result.out), "a\n") == 0 &&
                  strcmp(buf_text(&result.error), "b\n") == 0,
              "status %d", result.status);
    release(&result);
    if (run_shell("sleep 100 & echo left", "", &result))
        check(!result.late && strcmp(buf_text(&result.out), "left\n") == 0,
              "a process that is left behind");
    release(&result);
    sandbox.seconds = 0.3;
    if (run_shell("trap '' TERM; while :; do sleep 1; done", "", &result))
        check(result.late, "an endless program");
    release(&result);
    sandbox.seconds = SANDBOX_SECONDS;
    check(clock_ms() - begun < 1e4, "the limits take %g ms", clock_ms() - begun);
    if (run_shell("exec head -c 1", "many", &result)) /* does not read all of its input */
        check(result.status == 0 && result.out.len == 1, "the rest of the input");
    release(&result);
}

static void test_starts(void)
{
    static char *const unknown[] = {"no-such-program", NULL}, *const relative[] = {"./script", "a b",
                                                                                   "$HOME", NULL};
    struct sandbox_result result;
    struct err err;
    check(sandbox_run(&sandbox, unknown, "", 0, &result, &err) < 0 && strstr(err.text, "no program"),
          "%s", err.text);
    release(&result);
    if (check(sandbox_run(&sandbox, relative, "x", 1, &result, &err) == 0, "%s", err.text))
        check(strcmp(buf_text(&result.out), "a b|$HOME|x") == 0, "words: %s", buf_text(&result.out));
    release(&result);
}

int main(int argc, char **argv)
{
    struct err err;
    if (!check(argc == 2, "usage: test_sandbox FOLDER"))
        return check_result();
    if (sandbox_open(&sandbox, argv[1], &err) < 0) {
        printf("%s\n", err.text);
        return 77;
    }
    printf("# %s\n", *sandbox.bwrap ? sandbox.bwrap : "Landlock");
    test_starts();
    test_uses(argv[1]);
    test_refusals(argv[1]);
    test_limits();
    return check_result();
}
