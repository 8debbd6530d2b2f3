/* Chooses the layers of a model that a device computes; the CPU computes the others. */
#pragma once

#include "model/forward.h"

/* Sets on_host[layers + SPLIT_PARTS] to the parts that the CPU computes, and returns how many layers, the output layer counted,
 * are the device's. These are the last `gpu_layers`, but with `fallback` for those that the device cannot run over a cache of
 * this shape, and those that share KV entries with them; without `fallback` these fail. Embeddings are where the first layer is.
 * Returns -1 if that fails, or the device would have no layer but the output layer where more are asked for, or none at all. */
int split_layers(bool *on_host, const struct model *model, const struct backend *device,
                 const struct kv_shape *shape, size_t gpu_layers, bool fallback,
                 struct err *err) MUST_USE;
