/* From rank to rank. */
#include "model/chain.h"

#include "base/clock.h"
#include "base/ranks_tags.h"

struct chain chain_open(const struct model *model)
{
    return model->by_layers ? (struct chain){.ranks = model->ranks, .first_layer = model->first_layer}
                            : (struct chain){0};
}

bool chain_first(const struct chain *chain) { return !chain->ranks || chain->ranks->rank == 0; }

bool chain_last(const struct chain *chain)
{
    return !chain->ranks || chain->ranks->rank + 1 == chain->ranks->size;
}

static int receive(struct chain *chain, int from, int tag, float *x, size_t floats, struct err *err)
{
    const double start = clock_ms();
    if (ranks_take(chain->ranks, from, tag, x, floats * sizeof *x, err) < 0)
        return -1;
    chain->wait_ms += clock_ms() - start;
    return 0;
}

static int send(const struct chain *chain, int to, int tag, const float *x, size_t floats,
                struct err *err)
{
    return chain->ranks->ops->send(chain->ranks, x, floats * sizeof *x, to, tag, err);
}

static int tag_of(size_t question)
{
    return RANKS_TAG_LOGITS + (int)(question % (RANKS_TAG_END - RANKS_TAG_LOGITS));
}

int chain_receive(struct chain *chain, float *x, size_t floats, struct err *err)
{
    return chain_first(chain) ? 0
                              : receive(chain, chain->ranks->rank - 1, RANKS_TAG_ROWS, x, floats, err);
}

int chain_send(const struct chain *chain, const float *x, size_t floats, struct err *err)
{
    return chain_last(chain) ? 0 : send(chain, chain->ranks->rank + 1, RANKS_TAG_ROWS, x, floats, err);
}

int chain_give(const struct chain *chain, size_t number, const float *logits, size_t floats,
               struct err *err)
{
    return send(chain, 0, tag_of(number), logits, floats, err);
}

int chain_take(struct chain *chain, size_t number, float *logits, size_t floats, struct err *err)
{
    return receive(chain, chain->ranks->size - 1, tag_of(number), logits, floats, err);
}
