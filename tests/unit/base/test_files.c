/* Files of a run: no output may replace any of many inputs. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/check.h"
#include "opt/opt_files.h"

enum { INPUTS = 100 };

static const struct program program = {.name = "bmc-files"};

/* Exit code of a program that reads all inputs and would write `path`. */
static int code_of(const char *path)
{
    static char name[INPUTS][32];
    struct err err;
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(9);
        for (int i = 0; i < INPUTS; i++) {
            snprintf(name[i], sizeof name[i], "input-%d", i);
            opt_files_input("input", name[i]);
        }
        _exit(opt_files_output(&program, "output", path, OPT_WRITES_STATS, &err) < 0 ? 1 : 0);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(void)
{
    char name[32];
    for (int i = 0; i < INPUTS; i++) {
        snprintf(name, sizeof name, "input-%d", i);
        FILE *file = fopen(name, "w");
        check(file && fclose(file) == 0, "%s cannot be created", name);
    }
    for (int i = 0; i < INPUTS; i += 9) {
        snprintf(name, sizeof name, "./input-%d", i);
        const int code = code_of(name);
        check(code == 2, "input %d would be replaced: exit %d", i, code);
    }
    check(code_of("output") == 0, "other files may be written");
    return check_result();
}
