/* A rank that follows. */
#include "decode/follow.h"
#include "gen_split.h"

int gen_follow(struct gen *gen, struct err *err)
{
    struct session_options options;
    return gen_session_options(gen, &options, err) < 0 ? -1 : follow(gen->model, &options, err);
}
