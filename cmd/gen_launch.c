/* What a launcher of several processes has told this one, and how ranks beyond the first speak. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/number.h"
#include "gen_ranks.h"

/* Open MPI's mpirun, MPICH's mpiexec, and what speaks PMIx, as srun. */
static const struct {
    const char *rank, *size;
} variables[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"PMIX_RANK", NULL},
};

/* The standard error that this rank was started with. */
static int told_fd = STDERR_FILENO;

static int number_of(const char *variable, int otherwise)
{
    enum { MOST = 1 << 20 };
    const char *text = variable ? getenv(variable) : NULL;
    size_t n;
    return text && parse_size(text, &n) && n < MOST ? (int)n : otherwise;
}

struct launched launched(void)
{
    for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
        const int rank = number_of(variables[i].rank, -1);
        if (rank >= 0)
            return (struct launched){rank, number_of(variables[i].size, 0)};
    }
    return (struct launched){-1, 0};
}

void ranks_quiet(void)
{
    if (launched().rank <= 0)
        return;
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    const int kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (null < 0 || kept < 0)
        return; /* better twice than never */
    told_fd = kept;
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    close(null);
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
    dprintf(told_fd, "%s: %s: %s\n", program, rank_name().text, sentence);
}
