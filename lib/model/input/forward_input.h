/* Inputs of every layer of its own (per-layer embeddings of Gemma 3n and 4), and factors of layers' outputs:
 *
 *   input[layer] = (norm(x Winputs / sqrt(hidden)) + sqrt(w) embed_layers(token)) / sqrt(2)     [rows][w]
 *
 * for the embedding x and w = layer_input; and after each layer
 *
 *   x += norm((act(x Wgate) * input[layer]) Wout)
 *   x *= scale */
#ifndef BMC_FORWARD_INPUT_H
#define BMC_FORWARD_INPUT_H

#include "model/forward.h"

/* Computes the inputs of this rank's layers from the embeddings in f->x, if the model has such. */
void forward_input_begin(struct forward *f, const struct step *step);

/* Adds a layer's input to f->x, and multiplies it by the layer's factor, where the model has them. */
void forward_input_add(struct forward *f, struct row_range rows, size_t layer);

#endif
