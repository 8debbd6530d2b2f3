/* Which tile configuration a thread has. */
#ifndef BMC_TILES_NOW_H
#define BMC_TILES_NOW_H

extern _Thread_local const void *tiles_now; /* NULL: none */

#endif
