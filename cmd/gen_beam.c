/* bmc-gen --beams: the options of beam search. */
#include <math.h>

#include "cli.h"
#include "decode/step_beam.h"
#include "gen.h"

int gen_open_beams(struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    const struct beam_options options = {
        .width = o->beams,
        .length_penalty = isnan(o->length_penalty) ? 1 : o->length_penalty,
        .stopping = o->early_stopping < 0 ? BEAM_STOP_NO : (enum beam_stopping)o->early_stopping,
    };
    const size_t n_best = o->n_best ? o->n_best : o->jsonl ? o->beams : 1;
    if (!o->beams)
        return 0;
    if (step_beam_open(&gen->beam, &gen->session, &options, n_best, err) < 0)
        return -1;
    gen->strategy = step_beam_strategy(gen->beam);
    return 0;
}

void gen_close_beams(struct gen *gen)
{
    step_beam_close(gen->beam);
    gen->beam = NULL;
}

void gen_check_beams_usage(const struct program *program, const struct gen_options *o)
{
    const bool more = o->n_best || !isnan(o->length_penalty) || o->early_stopping >= 0;
    if (more && !o->beams)
        opt_usage_error(program, "--n-best, --length-penalty and --early-stopping go with --beams");
    if (!o->beams)
        return;
    if (o->n_best > o->beams)
        opt_usage_error(program, "--n-best %zu of %zu beams: there are fewer", o->n_best, o->beams);
    if (o->score || o->tokenize || o->detokenize)
        opt_usage_error(program, "--beams goes with generation only");
    if (o->save_kv || o->prompt_cache)
        opt_usage_error(
            program, "--beams leaves no rows to go on from: it excludes --save-kv and --prompt-cache");
}
