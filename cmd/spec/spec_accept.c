/* Files of measured acceptance rates of the draft model's first, second, .. choice of a token: one
 * file per pair of models and mode (greedy or sampling). */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli.h"
#include "decode/spec/acceptance.h"
#include "opt/opt_files.h"
#include "spec/speccmd.h"
#include "userdir.h"

enum { NAME_BYTES = 80 };

/* Used without a file: typical acceptance rates of a draft model's first, second, .. choice. */
static const double typical[] = {0.6, 0.12, 0.06, 0.03, 0.02, 0.015, 0.01, 0.01};

static void drafter_id(const struct spec_run *run, size_t bytes, char *text)
{
    if (run->draft)
        hash_hex(&run->draft->file.model_id, bytes, text);
    else
        strcpy(text, run->cli->recycle ? "recycle" : "lookup");
}

/* The mode in an acceptance file's name: rates differ between greedy decoding and sampling. */
static const char *mode(const struct spec_run *run)
{
    return run->gen.sampling.temp <= 0 ? "greedy" : "sampling";
}

/* The path for these two models, in the folder of the tuned profile. False: no such folder. */
static bool default_path(const struct spec_run *run, char *path, size_t size)
{
    char target[17], draft[17], name[NAME_BYTES];
    hash_hex(&run->gen.model->file.model_id, 8, target);
    drafter_id(run, 8, draft);
    snprintf(name, sizeof name, "acceptance-%s-%s-%s", target, draft, mode(run));
    return userdir_path(name, path, size);
}

static int read_file(struct spec_run *run, const char *path, struct err *err)
{
    struct acceptance a;
    char id[2 * HASH_BYTES + 1], own_draft[2 * HASH_BYTES + 1];
    if (acceptance_read(&a, path, err) < 0)
        return -1;
    hash_hex(&run->gen.model->file.model_id, HASH_BYTES, id);
    drafter_id(run, HASH_BYTES, own_draft);
    if (strcmp(a.target, id) != 0)
        return err_set(err, "%s: was recorded for another model; record it with --record-acceptance",
                       path);
    if (strcmp(a.draft, own_draft) != 0)
        return err_set(err, "%s: was recorded with another drafter; record it with --record-acceptance",
                       path);
    run->options.ranks = a.ranks;
    memcpy(run->options.accept, a.share, a.ranks * sizeof *a.share);
    return 0;
}

int spec_read_acceptance(struct spec_run *run, struct err *err)
{
    const char *given = run->cli->acceptance;
    if (given)
        snprintf(run->acceptance, sizeof run->acceptance, "%s", given);
    else if (!default_path(run, run->acceptance, sizeof run->acceptance))
        run->acceptance[0] = 0;
    run->options.ranks = ARRAY_LEN(typical);
    memcpy(run->options.accept, typical, sizeof typical);
    if (run->cli->record && run->gen.ranks && run->gen.parallelism == DATA_PARALLEL)
        return err_set(err, "--record-acceptance needs a single process, not --parallelism data");
    if (run->cli->record) {
        if (!run->acceptance[0])
            return err_set(err, "no folder for the acceptance file, as $XDG_CONFIG_HOME or $HOME: give "
                                "--acceptance FILE");
        if (!given)
            userdir_make(run->acceptance);
        return opt_files_output(run->gen.program, "acceptance", run->acceptance, OPT_WRITES_ACCEPTANCE,
                                err);
    }
    const bool wanted = (run->cli->tree_nodes || run->cli->tree_auto || run->cli->recycle);
    if (!wanted || !run->acceptance[0] || (!given && !file_exists(run->acceptance)))
        return 0;
    return read_file(run, run->acceptance, err);
}

int spec_write_acceptance(struct spec_run *run, struct err *err)
{
    const struct spec_stats *s = spec_stats(run->spec);
    struct buf text = {0};
    char target[2 * HASH_BYTES + 1], draft[2 * HASH_BYTES + 1];
    if (s->record_steps == 0)
        return err_set(err, "nothing was drafted: there is no acceptance to record");
    hash_hex(&run->gen.model->file.model_id, HASH_BYTES, target);
    drafter_id(run, HASH_BYTES, draft);
    size_t ranks = TREE_RANKS;
    while (ranks > 1 && !s->record[ranks - 1])
        ranks--;
    int rc = buf_addf(&text, err, "target %s\ndraft %s\nmode %s\nsteps %zu\naccept", target, draft,
                      mode(run), s->record_steps);
    for (size_t i = 0; i < ranks && rc == 0; i++)
        rc = buf_addf(&text, err, " %.6f", (double)s->record[i] / (double)s->record_steps);
    if (rc == 0)
        rc = buf_addf(&text, err, "\n");
    if (rc == 0)
        rc = outfile_save(run->acceptance, text.data, text.len, err);
    buf_release(&text);
    if (rc == 0 && !run->gen.options->quiet)
        cli_say(stderr, "acceptance       = written to %s\n", run->acceptance);
    return rc;
}
