/* The AMX tile configuration of the calling thread. */
#include "kernel/tiles_now.h"

_Thread_local const void *tiles_now;
