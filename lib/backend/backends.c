/* The backends that there are: a new one is a folder beside lib/cpu, and a name here. */
#include "backend/backend.h"

extern const struct backend cpu_backend;

const struct backend *const backends[] = {&cpu_backend, NULL};
