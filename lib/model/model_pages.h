/* Pages of a model's weights. */
#pragma once

#include "base/cores.h"
#include "model/model.h"

/* Reads all weights and maps their pages, which the first tokens to use them would do: an expert is chosen by
 * few. Does nothing for files larger than the available memory, and on kernels before 5.14. */
void model_map_pages(const struct model *model);

/* Reads the weights of a file that this machine has not read before, in the order in which a pass over the model uses
 * them, while the first passes compute: embedding tables and experts, of which few rows are used, are left to their
 * first use. */
struct read_ahead;

/* Begins in a thread of its own. NULL: there is nothing to read, the model is split over ranks, the file is larger than
 * the available memory, or there is no thread: weights are then read by those who use them first. */
struct read_ahead *read_ahead_begin(const struct model *model);

/* Ends it, wherever it is. Accepts NULL. */
void read_ahead_end(struct read_ahead *reader);

/* Asks for huge pages, in which file systems with large folios then read the file, except for embedding tables, of
 * which reading a row should load a page. */
void model_advise_pages(const struct model *model);

/* Advises against huge pages for an embedding table: whole pages of it, so not for what lies beside it. */
void model_advise_table(const struct mat *table);

/* Options of programs and of the public library. */
struct pages_options {
    bool hugepages, numa;
    int threads; /* of the team that will use the model */
};

/* Copies a mapped model as the options say, or leaves it as it is. *one_node is set to true if `numa` is given, but
 * this process may use the cores of one node only, where it changes nothing. */
int model_use_pages(const struct model *model, const struct pages_options *options, bool *one_node,
                    struct err *err) MUST_USE;

/* Where a model's weights belong: bytes [from, from + bytes) of the file to node `node`. */
typedef void model_place(void *arg, size_t node, size_t from, size_t bytes);

/* Calls `place` for the rows of all dense matrices. */
void model_place_weights(const struct model *model, const struct numa *numa, int threads,
                         model_place *place, void *arg);
