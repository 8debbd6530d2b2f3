/* The AMX tile configuration of the calling thread. */
#include "kernel/x86/tiles_now.h"

#include <stddef.h>

_Thread_local const void *tiles_now;
