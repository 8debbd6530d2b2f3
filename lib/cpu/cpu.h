/* The CPU as a backend. */
#ifndef BMC_CPU_H
#define BMC_CPU_H

#include "backend/backend.h"

extern const struct backend cpu_backend;

#endif
