/* bmc-spec on a backend whose memory cannot be used outside of it (poisoned.h), instead of the CPU's. It is linked with
 * --wrap=cpu_backend: whatever asks for the CPU's backend has this one. */
#define cpu_backend __real_cpu_backend
#include "poisoned.h"

extern struct backend __wrap_cpu_backend;
struct backend __wrap_cpu_backend;

__attribute__((constructor)) static void replace_backend(void)
{
    __wrap_cpu_backend = poisoned_backend();
}

__attribute__((destructor)) static void check_backend(void)
{
    if (poison.windows == 0) {
        fprintf(stderr, "the poisoned backend did not run\n");
        _exit(3);
    }
}
