/* OpenCL devices as a backend: GPUs and whatever else has a driver with shared virtual memory (OpenCL 2 or 3).
 *
 * Products are computed in f32 from weights of any type without a grid, which stay packed; the KV cache is of f32, bf16,
 * f16, q8 or q8_channel. For one device and driver, logits do not depend on the batch, the chunk, the cache policy or
 * drafts: every sum has one order, and no kernel adds by atomic operations. */
#pragma once

#include "backend/backend.h"

extern const struct backend opencl_backend;

/* What the memory has copied, allocated and freed so far, by commands to the device. */
struct opencl_counts {
    uint64_t copied_bytes, zeroed_bytes, allocations, frees;
};
struct opencl_counts opencl_counts(void);
