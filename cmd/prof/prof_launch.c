/* Runs a program and collects its output. */
#include "prof/prof_launch.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

int command_add(struct command *command, struct err *err, const char *format, ...)
{
    va_list args;
    if (command->n + 1 == ARRAY_LEN(command->word))
        return err_set(err, "a command has more than %zu words", command->n);
    va_start(args, format);
    const int len = vasprintf(&command->word[command->n], format, args);
    va_end(args);
    if (len < 0)
        return err_no_memory(err, "a command");
    command->word[++command->n] = NULL;
    return 0;
}

void command_release(struct command *command)
{
    while (command->n)
        free(command->word[--command->n]);
}

static int spawn_program(char **words, int input_fd, int output_fd, int error_fd, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0)
        return rc;
    if ((rc = posix_spawn_file_actions_adddup2(&actions, input_fd, STDIN_FILENO)) == 0 &&
        (rc = posix_spawn_file_actions_adddup2(&actions, output_fd, STDOUT_FILENO)) == 0 &&
        (!error_fd || (rc = posix_spawn_file_actions_adddup2(&actions, error_fd, STDERR_FILENO)) == 0))
        rc = posix_spawnp(pid, words[0], &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

static int read_output(int fd, struct buf *output, struct err *err)
{
    enum { BLOCK = 1 << 16 };
    for (;;) {
        if (buf_reserve(output, BLOCK, err) < 0)
            return -1;
        const ssize_t n = cli_read(fd, output->data + output->len, BLOCK);
        if (n < 0)
            return err_errno(err, "cannot read what a program prints");
        if (n == 0)
            return 0;
        output->len += (size_t)n;
    }
}

/* Sets the error for an exit status other than 0. */
static int await_program(pid_t pid, const char *name, struct err *err)
{
    int status;
    if (cli_interrupted)
        kill(pid, SIGTERM);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_errno(err, "%s: cannot be waited for", name);
    if (cli_interrupted)
        return err_code(err, ERR_INTERRUPTED, "interrupted");
    if (WIFSIGNALED(status))
        return err_set(err, "%s was ended by signal %d", name, WTERMSIG(status));
    return WEXITSTATUS(status) == 0 ? 0
                                    : err_set(err, "%s ended with status %d: see its messages above",
                                              name, WEXITSTATUS(status));
}

int command_run(struct command *command, int input_fd, struct buf *output, struct err *err)
{
    int end[2], rc = -1;
    pid_t pid;
    const char *name = command->word[0];
    if (lseek(input_fd, 0, SEEK_SET) < 0 || pipe2(end, O_CLOEXEC) < 0)
        return err_errno(err, "%s: cannot be started", name);
    const int failure = spawn_program(command->word, input_fd, end[1], command->errors, &pid);
    close(end[1]);
    if (failure) {
        errno = failure;
        err_errno(err, "%s: cannot be started", name);
    } else {
        rc = read_output(end[0], output, err);
        if (await_program(pid, name, err) < 0)
            rc = -1;
    }
    close(end[0]);
    return rc;
}
