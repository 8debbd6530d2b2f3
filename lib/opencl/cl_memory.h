/* The memory of the device. */
#pragma once

#include "backend/memory.h"
#include "opencl/cl_device.h"

extern const struct backend_memory cl_memory;

static inline struct device_addr cl_addr(cl_address at) { return (struct device_addr){at}; }

/* The number by which kernels know a type of KV entries; -1: they do not. */
int cl_type_of(enum dtype type);

/* Compiles the kernels that copy and convert. */
int cl_memory_open(struct err *err) MUST_USE;
