/* The CPU as a backend. */
#pragma once

#include "attn/attn.h"
#include "backend/backend.h"

/* How it computes. */
struct cpu_options {
    const struct kernels *kernels;
    enum precision precision;
    const struct attn_backend *attn;
};

extern const struct backend cpu_backend;
