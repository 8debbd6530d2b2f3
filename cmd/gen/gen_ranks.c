/* Ranks: the processes of a run, and how they share the work. Rank 0 reads input and writes results. */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/number.h"
#include "cli.h"
#include "decode/replica.h"
#include "gen/gen_ranks.h"
#include "tuned.h"
#include "kernel/kernel.h"
#include "model/parallel/shard_weights.h"
#include "ranks/ranks.h"
#include "ranks/ranks_tags.h"
#include "text/ids.h"

/* ---- variables of launchers (mpirun); ranks other than 0 are muted ---- */

/* The environment variables that a launcher such as mpirun sets. A shell started within a run
 * passes them on, so they may belong to another run. */
struct launched {
    int rank;            /* -1: no launcher, or variable `by` is not a number */
    int size;            /* -1: variable `size_by` is not a number; 0: unknown */
    const char *by;      /* name of the variable with the rank; NULL: none is set */
    const char *size_by; /* name of the variable with the number of ranks, or NULL */
};

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

static struct launched launched(void)
{
    for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
        const char *rank = variable_text(variables[i].rank), *size = variable_text(variables[i].size);
        if (rank)
            return (struct launched){parse_number(rank), size ? parse_number(size) : 0,
                                     variables[i].rank, size ? variables[i].size : NULL};
    }
    return (struct launched){.rank = -1};
}

/* Fails if a launcher variable is not a number, or if rank and size contradict each other. */
static int launched_check(const struct launched *l, struct err *err)
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

/* Fails if the launcher's variables contradict MPI's rank and size. */
static int launched_fits(const struct launched *l, int rank, int size, struct err *err)
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
static void discard(int fd)
{
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0)
        return;
    dup2(null, fd);
    close(null);
}

static bool ranks_errors_muted(void) { return stderr_fd != STDERR_FILENO; }

static void mute_errors(void)
{
    if (ranks_errors_muted())
        return;
    const int kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (kept < 0)
        return;
    stderr_fd = cli_last_words_fd = kept;
    discard(STDERR_FILENO);
}

void ranks_mute_errors(void)
{
    const struct launched l = launched();
    struct err err;
    if (l.rank > 0 && l.size_by && launched_check(&l, &err) == 0)
        mute_errors();
}

/* From here on, a rank other than 0 prints nothing except by ranks_say(). */
static void ranks_mute(void)
{
    discard(STDOUT_FILENO);
    mute_errors();
}

static void ranks_unmute_errors(void)
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

/* Prints "PROGRAM: rank 3 on HOST: sentence" to the rank's original stderr. */
static void ranks_say(const char *program, const char *sentence)
{
    dprintf(stderr_fd, "%s: %s: %s\n", program, rank_name().text, sentence);
}

/* ---- a rank that stays stopped ---- */

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
static _Noreturn void watch_rank(pid_t rank, const char *program)
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

/* Starts a process that ends this rank, with a message, if it stays stopped (SIGSTOP) for some seconds: the other
 * ranks would wait forever without mpirun noticing. mpirun does the rest: it forwards signals, reports ranks that die
 * and ends the others. The process stays in the rank's process group, so that suspending the whole run suspends and
 * resumes both. Called before threads are created. */
static void supervisor_begin(const char *program)
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
    watch_rank(rank, program);
}

/* ---- opening, agreeing, closing ---- */

const char *gen_parallelism_name(enum parallelism parallelism)
{
    static const char *const names[] = {"data", "tensor", "pipeline", "expert"};
    return names[parallelism];
}

static int choose_parallelism(struct gen *gen, struct gen_options *o, struct err *err)
{
    gen->parallelism = o->parallelism >= 0 ? (enum parallelism)o->parallelism
                       : o->jsonl          ? DATA_PARALLEL
                                           : TENSOR_PARALLEL;
    if (gen->parallelism == DATA_PARALLEL &&
        (o->score || o->embed || o->rerank || o->save_kv || o->prompt_cache))
        return err_set(err, "--parallelism data goes with generation, and neither with --save-kv nor "
                            "with --prompt-cache");
    if (gen->ranks->rank > 0) {
        o->stats = NULL;
        o->quiet = true;
    }
    return 0;
}

/* Exits at once, without destructors: threads may be in a forward pass, MPI's in a transfer, and other ranks wait in an
 * all-gather until mpirun, which notices that this one has ended, ends them. */
static _Noreturn void end_failed(const char *program)
{
    file_remove_unfinished();
    _exit(cli_end(program, CLI_FAILED));
}

/* Ends a process whose launcher variables contradict MPI: they belong to another run, so it must
 * not stay muted as if it were one of that run's ranks. */
static _Noreturn void end_stray(struct gen *gen, const struct err *err)
{
    if (gen->ranks->size == 1)
        ranks_close(gen->ranks);
    ranks_unmute_errors();
    cli_fail(gen->program->name, err);
    end_failed(gen->program->name);
}

static int join_ranks(struct gen *gen, const struct launched *l, struct err *err)
{
    char library[8192];
    if (cli_beside("../lib/bmc-mpi.so", library, sizeof library, err) < 0)
        return -1;
    if (ranks_open(&gen->ranks, library, err) < 0)
        return l->by ? err_prefix(err, "%s asks for several processes (unset it to run as one)", l->by)
                     : -1;
    if (launched_fits(l, gen->ranks->rank, gen->ranks->size, err) < 0)
        end_stray(gen, err);
    if (gen->ranks->rank > 0)
        ranks_mute();
    return 0;
}

int gen_open_ranks(struct gen *gen, struct gen_options *o, struct err *err)
{
    const struct launched l = launched();
    if (launched_check(&l, err) < 0)
        return -1;
    const bool asked = (l.by && l.size != 1) || o->parallelism >= 0;
    if (!asked)
        return 0;
    if (l.by)
        supervisor_begin(gen->program->name);
    return join_ranks(gen, &l, err) < 0 ? -1 : choose_parallelism(gen, o, err);
}

int gen_await_rank_0(struct gen *gen, struct err *err)
{
    char opened;
    return gen->ranks && gen->ranks->rank > 0
               ? ranks_take(gen->ranks, 0, RANKS_TAG_OPEN, &opened, sizeof opened, err)
               : 0;
}

int gen_let_ranks_open(struct gen *gen, struct err *err)
{
    const char opened = 1;
    const int ranks = gen->ranks && gen->ranks->rank == 0 ? gen->ranks->size : 0;
    for (int r = 1; r < ranks; r++)
        if (gen->ranks->ops->send(gen->ranks, &opened, sizeof opened, r, RANKS_TAG_OPEN, err) < 0)
            return -1;
    return 0;
}

/* True for options whose values may differ between hosts, such as paths and threads. */
static bool may_differ(const struct opt *opt)
{
    return opt->file || opt->kind == OPT_HEADING || opt->at == offsetof(struct gen_options, threads) ||
           opt->at == offsetof(struct gen_options, threads_batch) ||
           opt->at == offsetof(struct gen_options, mlock) ||
           opt->at == offsetof(struct gen_options, hugepages) ||
           opt->at == offsetof(struct gen_options, numa) ||
           opt->at == offsetof(struct gen_options, cpu_mask) ||
           opt->at == offsetof(struct gen_options, cores) ||
           opt->at == offsetof(struct gen_options, isa) ||
           opt->at == offsetof(struct gen_options, experts) ||
           opt->at == offsetof(struct gen_options, quiet);
}

static json_t *list_value(const struct opt_list *list)
{
    json_t *value = json_array();
    for (size_t i = 0; value && i < list->n; i++)
        if (json_array_append_new(value, json_text(list->text[i], strlen(list->text[i]))) < 0) {
            json_decref(value);
            return NULL;
        }
    return value;
}

static json_t *value_of(const struct opt *opt, const void *at)
{
    char number[40];
    const char *text = "";
    switch (opt->kind) {
    case OPT_LIST: return list_value(at);
    case OPT_FLAG: return json_boolean(*(const bool *)at);
    case OPT_SIZE:
    case OPT_TOKENS: return json_integer((json_int_t) * (const size_t *)at);
    case OPT_INT:
    case OPT_TOKENS_INT: return json_integer(*(const int64_t *)at);
    case OPT_SEED:
        return json_pack("[o, b]", json_whole(((const struct seed *)at)->value),
                         ((const struct seed *)at)->draw);
    case OPT_CHOICE: return json_integer(*(const int *)at);
    case OPT_TEXT: text = *(const char *const *)at ? *(const char *const *)at : ""; break;
    case OPT_REAL:
        snprintf(number, sizeof number, "%.17g", *(const double *)at);
        text = number;
        break;
    case OPT_HEADING: break;
    }
    return json_text(text, strlen(text));
}

/* Appends a line with an option and its value: "--temp 0.7". */
static int add_option(const struct opt *opt, const void *options, struct buf *text, struct err *err)
{
    AUTO(json_auto) json_t *value = value_of(opt, (const char *)options + opt->at);
    int rc = value ? 0 : err_no_memory(err, "options");
    if (rc == 0 &&
        (buf_addf(text, err, "--%s ", opt->name) < 0 ||
         json_append(value, JSON_ENCODE_ANY, text, err) < 0 || buf_add(text, "\n", 1, err) < 0))
        rc = -1;
    return rc;
}

static int add_model(struct buf *text, const char *what, const struct model *model, struct err *err)
{
    char id[2 * HASH_BYTES + 1] = "none";
    if (model)
        hash_hex(&model->file.model_id, HASH_BYTES, id);
    return buf_addf(text, err, "%s %s\n", what, id);
}

static int describe_run(struct gen *gen, struct buf *text, struct err *err)
{
    const struct gen_options *o = gen->options;
    const struct kernels *kernels = gen_kernels(gen, err);
    enum precision precision;
    if (!kernels || gen_precision(gen, kernels, &precision, err) < 0)
        return -1;
    const char *own = precision_kernels(kernels, precision); /* else logits are those of ref */
    if (buf_addf(text, err, "version %s\n", BMC_RELEASE) < 0 ||
        add_model(text, "model_id", gen->model, err) < 0 ||
        add_model(text, "draft model_id", gen->draft, err) < 0 ||
        buf_addf(text, err, "precision %s\nlogits of %s\n", precision_name(precision),
                 *own ? own : "ref") < 0)
        return -1;
    for (size_t i = 0; i < gen->program->n_opts; i++)
        if (!may_differ(&gen->program->opts[i]) && add_option(&gen->program->opts[i], o, text, err) < 0)
            return -1;
    return buf_add(text, "", 1, err);
}

/* Without --isa, makes all ranks use rank 0's kernel set, as defaults may differ between hosts. A
 * rank that cannot run it keeps its own; ranks_agree() reports that if their bits differ. */
static int agree_on_isa(struct gen *gen, struct err *err)
{
    char isa[32] = "";
    struct err ignored;
    const struct kernels *kernels = gen_kernels(gen, err);
    if (!kernels)
        return -1;
    snprintf(isa, sizeof isa, "%s", kernels->isa);
    if (gen->ranks->ops->broadcast(gen->ranks, isa, sizeof isa, 0, err) < 0)
        return -1;
    isa[sizeof isa - 1] = 0;
    if (isa_is_default(gen->options->isa) && strcmp(isa, kernels->isa) != 0 &&
        (kernels = kernels_select(isa, &ignored))) {
        gen->kernels = kernels;
        gen->isa_from = "rank 0";
    }
    return 0;
}

int gen_agree(struct gen *gen, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    if (!gen->ranks)
        return 0;
    int rc = agree_on_isa(gen, err);
    if (rc == 0)
        rc = describe_run(gen, &text, err);
    if (rc == 0)
        rc = ranks_agree(gen->ranks, rank_name().text, text.data, err);
    if (rc == 0) /* with --seed -1, every rank has drawn another seed */
        rc = gen->ranks->ops->broadcast(gen->ranks, &gen->seed, sizeof gen->seed, 0, err);
    return rc;
}

/* Waits a moment, then prints the error. If all ranks fail with the same error, rank 0 prints it
 * meanwhile and mpirun ends this rank before it can repeat it. */
static void fail_alone(const char *program, const struct err *err)
{
    enum { WAIT_MS = 1500, STEP_MS = 10 };
    for (int ms = 0; ms < WAIT_MS && !cli_interrupted; ms += STEP_MS)
        nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);
    if (!cli_interrupted)
        ranks_say(program, err->text);
}

void gen_close_ranks(struct gen *gen, int rc, const struct err *err)
{
    const char *program = gen->program->name;
    const int rank = gen->ranks ? gen->ranks->rank : ranks_errors_muted() ? launched().rank : 0;
    const bool failed = rc < 0 && !gen->over;
    if (gen->ranks && !failed && !cli_interrupted)
        ranks_close(gen->ranks);
    else if (rank > 0 && failed)
        fail_alone(program, err);
    else if (gen->ranks && failed)
        cli_fail(program, err);
    if (gen->ranks && failed)
        end_failed(program);
}

/* ---- tensor, expert and pipeline parallelism ---- */

bool gen_is_replica(const struct gen *gen)
{
    return gen_is_model_parallel(gen) && gen->ranks->rank > 0;
}

int gen_replicate(struct gen *gen, struct err *err)
{
    struct session_options options;
    return gen_session_options(gen, &options, err) < 0 ? -1 : replicate(gen->model, &options, err);
}

static int check_whole_model(const struct gen_options *o, struct err *err)
{
    const char *option = o->load_kv        ? "load-kv"
                         : o->save_kv      ? "save-kv"
                         : o->prompt_cache ? "prompt-cache"
                         : o->save_imatrix ? "save-imatrix"
                                           : NULL;
    return option
               ? err_set(
                     err,
                     "--%s needs the whole model in one process: run without mpirun and --parallelism",
                     option)
               : 0;
}

/* Reduces the model to this rank's layers under --layers LIST, the number of layers of each rank:
 * "10,12". */
static int shard_by_list(struct gen *gen, const char *list, struct err *err)
{
    const size_t size = (size_t)gen->ranks->size;
    AUTO(ids_release) struct ids ids = {0};
    AUTO(free_auto) size_t *count = mem_zalloc(size, sizeof *count);
    int rc = -1;
    if (!count)
        err_no_memory(err, "%zu ranks", size);
    else if (ids_parse(&ids, list, err) < 0 || ids.len != size)
        err_set(err,
                "--layers \"%s\": a number of layers for each of the %zu ranks is expected, as 10,12",
                list, size);
    else
        rc = 0;
    for (size_t r = 0; rc == 0 && r < size; r++)
        count[r] = ids.id[r];
    if (rc == 0)
        rc = shard_model_layers(gen->model, gen->ranks, count, err);
    return rc;
}

static int shard_model(struct gen *gen, struct err *err)
{
    const char *layers = gen->options->layers;
    const bool deal = gen->parallelism == EXPERT_PARALLEL;
    if (deal || gen->parallelism == TENSOR_PARALLEL)
        return shard_model_tensors(gen->model, gen->ranks, deal, err);
    return layers ? shard_by_list(gen, layers, err)
                  : shard_model_layers(gen->model, gen->ranks, NULL, err);
}

int gen_shard_model(struct gen *gen, struct err *err)
{
    if (!gen_is_model_parallel(gen))
        return 0;
    if (check_whole_model(gen->options, err) < 0 || shard_model(gen, err) < 0 ||
        (gen->options->mlock && shard_lock(gen->model, err) < 0))
        return -1;
    if (!gen_is_replica(gen)) {
        gen->leader = (struct leader){.ranks = gen->ranks};
        gen->leads = true;
    }
    return 0;
}

int gen_open_pipe(struct gen *gen, struct err *err)
{
    const size_t groups = gen->options->micro_batches;
    if (gen->strategy || !session_is_async(gen->session))
        return 0;
    if (step_pipe_open(&gen->pipe, gen->session, groups ? groups : (size_t)gen->ranks->size, err) < 0)
        return -1;
    gen->strategy = step_pipe_strategy(gen->pipe);
    return 0;
}

int gen_end_model_parallel(struct gen *gen, int rc, struct err *err)
{
    if (gen->leads && (rc == 0 || gen->over) && leader_end(&gen->leader, err) < 0)
        rc = -1;
    leader_close(&gen->leader);
    step_pipe_close(gen->pipe);
    return rc;
}

int gen_count_traffic(struct gen *gen, struct err *err)
{
    return gen->leads ? leader_stats(&gen->leader, session_wait_ms(gen->session), &gen->sent, err) : 0;
}
