/* The memory of the CPU: that of the process, used in place. */
#pragma once

#include "backend/memory.h"

extern const struct backend_memory cpu_memory;

/* The pointer that an address is, for operations of this backend; and the address of a pointer. */
static inline void *cpu_at(struct device_addr a) { return (void *)a.device_address; }
static inline struct device_addr cpu_addr(const void *at)
{
    return (struct device_addr){(uintptr_t)at};
}
