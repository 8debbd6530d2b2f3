/* Measures what types of KV entries cost a model (kv/kv_sensitivity.h). */
#pragma once

#include "kv/kv_sensitivity.h"
#include "prof/report.h"

/* Runs the n tokens `id` once for each layer's keys and values, and for all keys and all values of each type, each time
 * beside a cache of f32. Products are in the run's precision: f32 keeps the rounding of activations, which small changes turn
 * over, out of the figures. The caller releases *s, also after an error. */
int cache_costs_measure(struct kv_sensitivity *s, const struct report *report,
                        const struct model *model, const uint32_t *id, size_t n,
                        struct err *err) MUST_USE;
