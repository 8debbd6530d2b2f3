/* Which tile configuration a thread has. */
#include "kernel/tiles_now.h"

#include <stddef.h>

_Thread_local const void *tiles_now;
