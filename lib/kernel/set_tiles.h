/* The tile configuration of the calling thread. LDTILECFG and TILERELEASE cost more than the products of a panel with few rows, 7 to
 * 10 % of a decode step: so tiles stay configured from panel to panel, and code that needs another configuration sets its own.
 * Everything that uses tiles goes through here; nothing relies on their contents between calls.
 *
 * Included behind the header that defines _tile_loadconfig(). */
#ifndef BMC_SET_TILES_H
#define BMC_SET_TILES_H

#include <stddef.h>

#include "kernel/tiles_now.h"

/* `config` is a constant of the program: it is told from others by its address. */
static inline void tiles_set(const void *config)
{
    if (tiles_now != config)
        _tile_loadconfig(config);
    tiles_now = config;
}

static inline void tiles_release(void)
{
    _tile_release();
    tiles_now = NULL;
}

#endif
