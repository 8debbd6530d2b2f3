/* Models whose layers two backends compute: some the CPU, the others a device. A layer's weights and KV entries are in the
 * memory of its backend; the cache has one memory, split_memory(), which finds an address's by itself. */
#pragma once

#include "backend/backend.h"

/* The memory of a device and of the process at once. Blocks that do not belong to a layer are the process's; copies and
 * conversions may have one of them on either side. */
const struct backend_memory *split_memory(const struct backend *device);
