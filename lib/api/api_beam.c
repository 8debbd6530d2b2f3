/* The public API: beam search, the options beams, n_best, length_penalty and early_stopping. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_beam.h"
#include "base/text_util.h"
#include "serve/result.h"

static int read_stopping(const char *name, enum beam_stopping *stopping, struct err *err)
{
    const size_t index = name ? text_choice(BEAM_STOPPINGS, name) : BEAM_STOP_NO;
    if (index == SIZE_MAX)
        return text_no_choice("early_stopping", name, BEAM_STOPPINGS, err);
    *stopping = (enum beam_stopping)index;
    return 0;
}

int api_beam_read(struct beam_options *beam, struct bmc_options *o, struct err *err)
{
    *beam = (struct beam_options){.width = o->beams,
                                  .length_penalty = o->length_penalty ? *o->length_penalty : 1};
    if (!o->beams)
        return o->n_best || o->length_penalty || o->early_stopping
                   ? err_set(err, "n_best, length_penalty and early_stopping go with `beams`")
                   : 0;
    if (!o->sequences)
        o->sequences = o->beams;
    if (o->sequences < o->beams)
        return err_set(err, "%zu `beams` of a request need as many `sequences`: the context has %zu",
                       o->beams, o->sequences);
    if (o->n_best > o->beams)
        return err_set(err, "n_best is %zu of %zu `beams`: a search has no more results than beams",
                       o->n_best, o->beams);
    if (!isfinite(beam->length_penalty))
        return err_set(err, "length_penalty is not a finite number");
    if (o->draft || o->drafter)
        return err_set(err, "`beams` excludes speculative decoding: leave `draft` and `drafter` out");
    return read_stopping(o->early_stopping, &beam->stopping, err);
}

int api_beam_open(struct bmc_context *c, const struct beam_options *beam, size_t n_best,
                  struct err *err)
{
    return beam->width ? step_beam_open(&c->beam, c->session, beam, n_best ? n_best : beam->width, err)
                       : 0;
}

void api_beam_clear(struct bmc_context *c)
{
    for (size_t i = 0; c->beam && i < session_options(c->session)->batch; i++) {
        session_clear(c->session, i);
        c->tokens[i].len = 0;
    }
}

int api_beam_copy(struct bmc_result *to, const struct model *model, const struct gen_result *from,
                  size_t i, struct err *err)
{
    const struct beam *beam = &from->beams[i];
    struct buf text = {0};
    uint32_t *ids = malloc(beam->ids.len * sizeof *ids + 1);
    if (!ids)
        return err_no_memory(err, "a beam");
    if (result_beam_text(model->tok, from, i, &text, err) < 0 || buf_reserve(&text, 1, err) < 0) {
        buf_release(&text);
        free(ids);
        return -1;
    }
    memcpy(ids, beam->ids.id, beam->ids.len * sizeof *ids);
    text.data[text.len] = 0;
    to->ids = ids;
    to->n_ids = beam->ids.len;
    to->text = text.data;
    to->text_len = text.len;
    to->n_prompt = from->n_prompt;
    to->score = beam->score;
    return 0;
}
