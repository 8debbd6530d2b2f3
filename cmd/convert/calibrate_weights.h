/* bmc-convert --calibrate: an importance matrix without a text. */
#pragma once

#include "model/convert/convert.h"

/* Collects the importance matrix of a source of convert_folder() over tokens drawn at random from its vocabulary, in one
 * sequence at f32 precision: what differs most between inputs of a matrix, their scale, depends little on the text. The
 * draw is the same in every run. A folder or GGUF file is converted to an unnamed file beside `out` first, as its own
 * types. `weights` is to be closed by imatrix_weights_close(). Fails for draft heads, which run on their target alone. */
int convert_calibrate(struct imatrix_weights *weights, const char *source, const char *out,
                      const struct convert_options *options, int threads, struct err *err) MUST_USE;

/* The number of weights of a source, its draft head included; 0: it cannot be converted. */
size_t convert_count_weights(const char *source, const struct convert_options *options) MUST_USE;
