/* Reads the environment variables of launchers (mpirun), and mutes ranks other than 0. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/number.h"
#include "cli.h"
#include "gen/gen_ranks.h"

/* Variables that Open MPI's mpirun, MPICH's mpiexec, and PMIx launchers such as srun set. */
static const struct {
    const char *rank, *size;
} variables[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"PMIX_RANK", NULL},
};

/* Duplicate of this rank's original stderr; STDERR_FILENO: not muted. */
static int stderr_fd = STDERR_FILENO;

/* The value of an environment variable; an empty one counts as unset. */
static const char *variable_text(const char *variable)
{
    const char *text = variable ? getenv(variable) : NULL;
    return text && *text ? text : NULL;
}

static int parse_number(const char *text)
{
    enum { MOST = 1 << 20 };
    size_t n;
    return parse_size(text, &n) && n < MOST ? (int)n : -1;
}

struct launched launched(void)
{
    for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
        const char *rank = variable_text(variables[i].rank), *size = variable_text(variables[i].size);
        if (rank)
            return (struct launched){parse_number(rank), size ? parse_number(size) : 0,
                                     variables[i].rank, size ? variables[i].size : NULL};
    }
    return (struct launched){.rank = -1};
}

int launched_check(const struct launched *l, struct err *err)
{
    if (!l->by)
        return 0;
    const char *rank = getenv(l->by), *size = l->size_by ? getenv(l->size_by) : "";
    if (l->rank < 0)
        return err_set(err, "%s=%s is not the number of a rank: unset it to run as one process", l->by,
                       rank);
    if (l->size_by && l->size <= 0)
        return err_set(err, "%s=%s is not a number of ranks: unset %s to run as one process",
                       l->size_by, size, l->by);
    if (l->size_by && l->rank >= l->size)
        return err_set(err,
                       "%s=%s and %s=%s contradict each other, as ranks are numbered from 0: unset %s "
                       "to run as one process",
                       l->by, rank, l->size_by, size, l->by);
    return 0;
}

int launched_fits(const struct launched *l, int rank, int size, struct err *err)
{
    char of[32] = "";
    if (!l->by || (l->rank == rank && (!l->size_by || l->size == size)))
        return 0;
    if (l->size_by)
        snprintf(of, sizeof of, " of %d", l->size);
    return err_set(err,
                   "%s says that this is rank %d%s, but MPI that it is rank %d of %d: unset %s if "
                   "another launcher left it behind, or start the ranks with the mpirun of this MPI",
                   l->by, l->rank, of, rank, size, l->by);
}

/* Redirects a descriptor to /dev/null; leaves it as it is on failure. */
static void mute(int fd)
{
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0)
        return;
    dup2(null, fd);
    close(null);
}

static void mute_errors(void)
{
    if (ranks_errors_muted())
        return;
    const int kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (kept < 0)
        return;
    stderr_fd = cli_last_words_fd = kept;
    mute(STDERR_FILENO);
}

void ranks_mute_errors(void)
{
    const struct launched l = launched();
    struct err err;
    if (l.rank > 0 && l.size_by && launched_check(&l, &err) == 0)
        mute_errors();
}

void ranks_mute(void)
{
    mute(STDOUT_FILENO);
    mute_errors();
}

bool ranks_errors_muted(void) { return stderr_fd != STDERR_FILENO; }

void ranks_unmute_errors(void)
{
    if (ranks_errors_muted())
        dup2(stderr_fd, STDERR_FILENO);
    stderr_fd = cli_last_words_fd = STDERR_FILENO;
}

struct rank_name rank_name(void)
{
    char host[64] = "";
    struct rank_name name;
    const int rank = launched().rank;
    if (gethostname(host, sizeof host) < 0)
        host[0] = 0;
    host[sizeof host - 1] = 0;
    snprintf(name.text, sizeof name.text, "rank %d on %s", rank < 0 ? 0 : rank, host);
    return name;
}

void ranks_say(const char *program, const char *sentence)
{
    dprintf(stderr_fd, "%s: %s: %s\n", program, rank_name().text, sentence);
}
