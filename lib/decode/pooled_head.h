/* Dense layers after pooling: those of models for embeddings (sentence-transformers' Dense), and heads of classifiers.
 *
 *   y = norm(act(W1 x + b1)), z = W2 y + b2        each layer, bias and the LayerNorm only where the model has it
 *
 * for the pooled hidden state x. Sums are doubles, in order of the inputs, so that they depend on nothing else. */
#pragma once

#include "model/model.h"

/* Doubles that pooled_head_apply() needs as work space, and elements that it computes. */
size_t pooled_head_work(const struct config *config);

/* Sets y[config_pooled_width()] for the pooled state x[hidden]. `work`: pooled_head_work() doubles. Both may be large, as
 * nothing is rounded before the end. */
void pooled_head_apply(const struct model *model, const double *x, double *work, float *y);
