/* Keys and values that layers of other ranks attend to (layer_plan.kv_source): a rank of a pipeline receives those of
 * earlier layers, stores them in its own cache if its layers need them, and sends them on with its own. */
#pragma once

#include "model/forward.h"

/* Allocates f->relay, if this rank receives or sends any. */
int forward_relay_open(struct forward *f, struct err *err) MUST_USE;
void forward_relay_close(struct forward *f);

/* Receives the keys and values of earlier layers, and appends them to the cache. */
int forward_relay_receive(struct forward *f, const struct op_step *step, struct err *err) MUST_USE;

/* Runs OP_KEEP_KV: keeps the keys and values of a layer for forward_relay_send(), if other ranks need them. */
void forward_relay_keep(struct forward *f, const struct op *op, struct row_range rows);

int forward_relay_send(const struct forward *f, size_t rows, struct err *err) MUST_USE;
