/* Files of measured acceptance rates of the draft model's first, second, .. choice of a token: one
 * file per pair of models and mode (greedy or sampling). */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "acceptance_file.h"
#include "cli.h"
#include "opt/opt_files.h"
#include "spec/speccmd.h"
#include "userdir.h"

static struct acceptance_pair pair_of(const struct spec_run *run)
{
    const struct spec_cli *o = run->cli;
    return (struct acceptance_pair){
        .target = &run->gen.model->file.model_id,
        .draft = run->draft ? &run->draft->file.model_id : NULL,
        .drafter = o->recycle  ? "recycle"
                   : o->suffix ? "suffix"
                               : "lookup",
        .greedy = run->gen.sampling.temp <= 0,
    };
}

int spec_read_acceptance(struct spec_run *run, struct err *err)
{
    const char *given = run->cli->acceptance;
    const struct acceptance_pair pair = pair_of(run);
    struct acceptance a;
    if (given)
        snprintf(run->acceptance, sizeof run->acceptance, "%s", given);
    else if (!acceptance_path(&pair, run->acceptance, sizeof run->acceptance))
        run->acceptance[0] = 0;
    run->options.ranks = acceptance_typical(run->options.accept);
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
    const bool wanted =
        (run->cli->tree_nodes || run->cli->tree_auto || run->cli->recycle || run->options.tree);
    if (!wanted || !run->acceptance[0] || (!given && !file_exists(run->acceptance)))
        return 0;
    if (acceptance_read_pair(&a, &pair, run->acceptance, err) < 0)
        return -1;
    run->options.recorded = true;
    run->options.ranks = a.ranks;
    memcpy(run->options.accept, a.share, a.ranks * sizeof *a.share);
    return 0;
}

int spec_write_acceptance(struct spec_run *run, struct err *err)
{
    const struct spec_stats *s = spec_stats(run->spec);
    const struct acceptance_pair pair = pair_of(run);
    struct buf text = {0};
    char target[2 * HASH_BYTES + 1], draft[2 * HASH_BYTES + 1];
    if (s->record_steps == 0)
        return err_set(err, "nothing was drafted: there is no acceptance to record");
    acceptance_ids(&pair, target, draft);
    size_t ranks = TREE_RANKS;
    while (ranks > 1 && !s->record[ranks - 1])
        ranks--;
    int rc = buf_addf(&text, err, "target %s\ndraft %s\nmode %s\nsteps %zu\naccept", target, draft,
                      acceptance_mode(&pair), s->record_steps);
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
