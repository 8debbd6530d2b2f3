/* The ranks of a run: opened, brought to agreement, and closed. */
#include "gen_ranks.h"

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

const char *gen_split_name(enum split split)
{
    static const char *const names[] = {"requests", "tensor", "layers"};
    return names[split];
}

static int take_split(struct gen *gen, struct gen_options *o, struct err *err)
{
    gen->split = o->split >= 0 ? (enum split)o->split : o->jsonl ? SPLIT_REQUESTS : SPLIT_TENSOR;
    if (gen->split == SPLIT_REQUESTS && (o->score || o->save_kv || o->prompt_cache))
        return err_set(err,
                       "--split requests generates: --score, --save-kv and --prompt-cache are for a "
                       "run of one process");
    if (gen->ranks->rank > 0) {
        o->stats = NULL;
        o->quiet = true;
    }
    return 0;
}

/* What it has to say is said. It ends where it stands: a thread may be in the middle of a step, and others wait for a gather. */
static void end_all(const char *program, const struct err *err)
{
    cli_fail(program, err);
    file_remove_unfinished();
    guard_end();
    _exit(cli_end(program, CLI_FAILED));
}

/* Whoever was started with variables of another run must not fall silent as one of its ranks. */
static void end_stray(struct gen *gen, const struct err *err)
{
    if (gen->ranks->size == 1)
        ranks_close(gen->ranks);
    ranks_unmute_errors();
    end_all(gen->program->name, err);
}

static int meet(struct gen *gen, const struct launched *l, struct err *err)
{
    char library[8192];
    if (cli_beside("../lib/bmc-mpi.so", library, sizeof library, err) < 0)
        return -1;
    if (ranks_open(&gen->ranks, library, err) < 0)
        return l->by ? err_prefix(err, "%s asks for several processes (unset it to run alone)", l->by)
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
    const bool asked = (l.by && l.size != 1) || o->split >= 0;
    if (!asked)
        return 0;
    if (l.by)
        guard_begin(gen->program->name);
    return meet(gen, &l, err) < 0 ? -1 : take_split(gen, o, err);
}

/* ---- agreement ---- */

/* Files are each host's own, and so are its cores. */
static bool may_differ(const struct opt *opt)
{
    return opt->file || opt->kind == OPT_HEADING || opt->at == offsetof(struct gen_options, threads) ||
           opt->at == offsetof(struct gen_options, threads_batch) ||
           opt->at == offsetof(struct gen_options, mlock) ||
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

/* "--temp 0.7" */
static int tell_option(const struct opt *opt, const void *options, struct buf *text, struct err *err)
{
    json_t *value = value_of(opt, (const char *)options + opt->at);
    int rc = value ? 0 : err_set(err, "out of memory for options");
    if (rc == 0 &&
        (buf_add(text, "--", 2, err) < 0 || buf_add(text, opt->name, strlen(opt->name), err) < 0 ||
         buf_add(text, " ", 1, err) < 0 || json_append(value, JSON_ENCODE_ANY, text, err) < 0 ||
         buf_add(text, "\n", 1, err) < 0))
        rc = -1;
    json_decref(value);
    return rc;
}

static int tell(struct buf *text, const char *what, const char *value, struct err *err)
{
    char line[256];
    const int n = snprintf(line, sizeof line, "%s %s\n", what, value);
    return buf_add(text, line, size_min((size_t)n, sizeof line - 1), err);
}

static int tell_model(struct buf *text, const char *what, const struct model *model, struct err *err)
{
    char id[2 * HASH_BYTES + 1] = "none";
    if (model)
        hash_hex(&model->file.model_id, HASH_BYTES, id);
    return tell(text, what, id, err);
}

static int tell_all(struct gen *gen, const struct model *draft, struct buf *text, struct err *err)
{
    const struct gen_options *o = gen->options;
    const struct kernels *kernels = gen_kernels(gen, err);
    if (!kernels || tell(text, "version", BMC_RELEASE, err) < 0 ||
        tell_model(text, "model_id", gen->model, err) < 0 ||
        tell_model(text, "draft model_id", draft, err) < 0 || tell(text, "isa", kernels->isa, err) < 0)
        return -1;
    for (size_t i = 0; i < gen->program->n_opts; i++)
        if (!may_differ(&gen->program->opts[i]) &&
            tell_option(&gen->program->opts[i], o, text, err) < 0)
            return -1;
    return buf_add(text, "", 1, err);
}

/* Where no set is named, hosts may have different defaults: rank 0's is that of all. One that cannot run it keeps its own, and
 * ranks_agree() says so. */
static int take_isa(struct gen *gen, struct err *err)
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
    int rc = take_isa(gen, err);
    if (rc == 0)
        rc = tell_all(gen, draft, &text, err);
    if (rc == 0)
        rc = ranks_agree(gen->ranks, rank_name().text, text.data, err);
    if (rc == 0) /* each may have drawn one */
        rc = gen->ranks->ops->broadcast(gen->ranks, &gen->seed, sizeof gen->seed, 0, err);
    buf_release(&text);
    return rc;
}

/* ---- the end ---- */

/* Where all fail alike, rank 0 says it, and its end is ours. */
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
    guard_end();
}
