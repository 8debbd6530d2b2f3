/* Mappings of large files at addresses where they can be replaced by huge pages. */
#ifndef BMC_MAP_HUGE_H
#define BMC_MAP_HUGE_H

#include <stdbool.h>
#include <stddef.h>

/* Maps a file for reading, at a multiple of 2 MiB if it is that large. NULL with errno set on failure. */
void *map_huge_file(int fd, size_t bytes);

/* Called with the memory of a copy before it is populated. */
typedef void map_huge_place(void *arg, char *copy);

/* Replaces a mapping of map_huge_file() by a copy in transparent huge pages, at the same address. `place` may be
 * NULL. False: out of memory; nothing has changed. */
bool map_huge_copy(void *mapped, size_t bytes, map_huge_place *place, void *arg);

#endif
