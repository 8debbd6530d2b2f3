/* Options of speculation for each shape of drafts. */
#ifndef BMC_TEST_DRAFT_SHAPES_H
#define BMC_TEST_DRAFT_SHAPES_H

#include "decode/spec/spec.h"

static inline struct spec_options chain_of(size_t k)
{
    return (struct spec_options){
        .length = {.now = k, .limit = k, .increment = 2, .modulus = 10, .fixed = true},
        .simulate = -1,
        .always = true};
}

static inline struct spec_options tree_of(size_t nodes)
{
    return (struct spec_options){.tree = nodes,
                                 .tree_levels = 5,
                                 .accept = {.5, .2, .1, .05},
                                 .ranks = 4,
                                 .simulate = -1,
                                 .always = true};
}

static inline struct spec_options dynamic_tree_of(size_t nodes)
{
    struct spec_options options = tree_of(nodes);
    options.dynamic = true;
    return options;
}

static inline struct spec_options star(void)
{
    struct spec_options options = chain_of(1);
    options.record = true;
    return options;
}

#endif
