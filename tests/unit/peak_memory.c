/* Runs a program and prints its peak resident memory, mapped files included, in KiB; exits with its status.
 *
 *   peak_memory PROGRAM [ARGUMENT..] */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int status;
    struct rusage usage;
    if (argc < 2)
        return fprintf(stderr, "usage: peak_memory PROGRAM [ARGUMENT..]\n"), 2;
    const pid_t child = fork();
    if (child == 0) {
        execv(argv[1], argv + 1);
        perror(argv[1]);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &usage) < 0)
        return perror("peak_memory"), 1;
    printf("%ld\n", usage.ru_maxrss);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
