/* Opens and closes the ranks of a run, and checks that their settings agree. */
#include "gen/gen_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "cli.h"
#include "isa.h"
#include "kernel/kernel.h"
#include "ranks/ranks_open.h"

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
    if (gen->parallelism == DATA_PARALLEL && (o->score || o->embed || o->save_kv || o->prompt_cache))
        return err_set(err, "--parallelism data goes with generation, and neither with --save-kv nor "
                            "with --prompt-cache");
    if (gen->ranks->rank > 0) {
        o->stats = NULL;
        o->quiet = true;
    }
    return 0;
}

/* Prints the error and exits at once, since threads may be in a forward pass and other ranks wait
 * in an all-gather; mpirun then ends those. */
static _Noreturn void end_all(const char *program, const struct err *err)
{
    cli_fail(program, err);
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
    end_all(gen->program->name, err);
}

static int open_ranks(struct gen *gen, const struct launched *l, struct err *err)
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
    return open_ranks(gen, &l, err) < 0 ? -1 : choose_parallelism(gen, o, err);
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
    json_t *value = value_of(opt, (const char *)options + opt->at);
    int rc = value ? 0 : err_no_memory(err, "options");
    if (rc == 0 &&
        (buf_addf(text, err, "--%s ", opt->name) < 0 ||
         json_append(value, JSON_ENCODE_ANY, text, err) < 0 || buf_add(text, "\n", 1, err) < 0))
        rc = -1;
    json_decref(value);
    return rc;
}

static int add_model(struct buf *text, const char *what, const struct model *model, struct err *err)
{
    char id[2 * HASH_BYTES + 1] = "none";
    if (model)
        hash_hex(&model->file.model_id, HASH_BYTES, id);
    return buf_addf(text, err, "%s %s\n", what, id);
}

static int describe_run(struct gen *gen, const struct model *draft, struct buf *text, struct err *err)
{
    const struct gen_options *o = gen->options;
    const struct kernels *kernels = gen_kernels(gen, err);
    if (!kernels || buf_addf(text, err, "version %s\n", BMC_RELEASE) < 0 ||
        add_model(text, "model_id", gen->model, err) < 0 ||
        add_model(text, "draft model_id", draft, err) < 0 ||
        buf_addf(text, err, "isa %s\n", kernels->isa) < 0)
        return -1;
    for (size_t i = 0; i < gen->program->n_opts; i++)
        if (!may_differ(&gen->program->opts[i]) && add_option(&gen->program->opts[i], o, text, err) < 0)
            return -1;
    return buf_add(text, "", 1, err);
}

/* Without --isa, makes all ranks use rank 0's kernel set, as defaults may differ between hosts. A
 * rank that cannot run it keeps its own, and ranks_agree() reports that. */
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

int gen_agree(struct gen *gen, const struct model *draft, struct err *err)
{
    struct buf text = {0};
    if (!gen->ranks)
        return 0;
    int rc = agree_on_isa(gen, err);
    if (rc == 0)
        rc = describe_run(gen, draft, &text, err);
    if (rc == 0)
        rc = ranks_agree(gen->ranks, rank_name().text, text.data, err);
    if (rc == 0) /* with --seed -1, every rank has drawn another seed */
        rc = gen->ranks->ops->broadcast(gen->ranks, &gen->seed, sizeof gen->seed, 0, err);
    buf_release(&text);
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
        end_all(program, err);
}
