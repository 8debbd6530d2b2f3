/* bmc-spec: how much is drafted. */
#include <string.h>

#include "speccmd.h"

/* Free rows: those whose arithmetic takes about as long as reading the weights. There are more of them where a product has one term, and
 * where tiles multiply (tests/bench/speculation.md). */
enum { USUAL_FREE_ROWS = 16, USUAL_FREE_ROWS_BF16 = 24, USUAL_FREE_ROWS_TILES = 32, USUAL_TREE = 26 };

static size_t usual_free_rows(const struct session_options *s)
{
    const bool one_term = s->precision == PRECISION_BF16;
    if (strcmp(s->kernels->isa, "amx") == 0 && (one_term || s->precision == PRECISION_BF16X2))
        return USUAL_FREE_ROWS_TILES;
    return one_term ? USUAL_FREE_ROWS_BF16 : USUAL_FREE_ROWS;
}

size_t spec_free_rows(const struct spec_run *run, const struct session_options *s, const char **from)
{
    const size_t tuned = tuned_free_rows(&run->gen.tuned);
    const char *unused;
    from = from ? from : &unused;
    if (run->cli->free_rows) {
        *from = "option";
        return run->cli->free_rows;
    }
    if (tuned) {
        *from = "profile";
        return tuned;
    }
    *from = "default";
    return usual_free_rows(s);
}

int spec_set_length(struct spec_run *run, const struct session_options *s, struct err *err)
{
    const struct spec_cli *o = run->cli;
    struct draft_length *length = &run->options.length;
    const bool tree = o->tree_nodes || (o->recycle && o->k_auto && !o->tree_auto);
    const char *from;
    const size_t free_rows = spec_free_rows(run, s, &from);
    /* A single sequence needs no default limit by rows: algorithm 1 itself keeps drafts as short as they are accepted. */
    const bool by_rows = s->batch > 1 || strcmp(from, "default") != 0;
    const size_t limit =
        by_rows ? size_min(o->limit, draft_length_limit(free_rows, s->batch)) : o->limit;
    *length = (struct draft_length){.increment = o->step,
                                    .modulus = o->modulus,
                                    .limit = o->k_auto ? limit : o->k,
                                    .fixed = !o->k_auto};
    length->now = o->k_auto ? size_min(o->start, limit) : o->k;
    if (tree)
        run->options.tree =
            o->tree_nodes ? o->tree_nodes : size_min(USUAL_TREE, size_max(free_rows, 2) - 1);
    const size_t most = spec_most(&run->options);
    if ((!o->k_auto || o->tree_nodes) && most >= s->context)
        return err_set(err,
                       "%zu candidates do not fit the context of %zu tokens: use fewer, or a larger -c",
                       most, s->context);
    if (!o->record)
        length->limit = size_min(length->limit, s->context);
    return 0;
}
