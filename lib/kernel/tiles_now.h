/* The AMX tile configuration of the calling thread (amx_tiles.h). */
#pragma once

extern _Thread_local const void *tiles_now; /* NULL: tiles are not configured */
