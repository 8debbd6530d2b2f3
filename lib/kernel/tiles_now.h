/* The AMX tile configuration of the calling thread (amx_tiles.h). */
#ifndef BMC_TILES_NOW_H
#define BMC_TILES_NOW_H

extern _Thread_local const void *tiles_now; /* NULL: tiles are not configured */

#endif
