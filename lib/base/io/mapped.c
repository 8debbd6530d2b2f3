/* Names of mapped files, in a table that a signal handler can read at any time. */
#include "base/io/mapped.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

enum { MAX_MAPPED = 256, NAME_SIZE = 512 };

/* Table of mappings. `data`, a mapping's address, is set last and cleared first, so that the other
 * members are valid while it is not 0. Mappings beyond MAX_MAPPED are not recorded. */
static struct {
    atomic_bool taken;
    atomic_uintptr_t data;
    size_t size;
    char name[NAME_SIZE];
} mapped[MAX_MAPPED];

void mapped_add(const void *data, size_t size, const char *name)
{
    const size_t len = strlen(name);
    size_t i = 0;
    while (i < MAX_MAPPED && atomic_exchange(&mapped[i].taken, true))
        i++;
    if (i == MAX_MAPPED)
        return;
    mapped[i].size = size;
    if (len < NAME_SIZE)
        memcpy(mapped[i].name, name, len + 1);
    else
        snprintf(mapped[i].name, NAME_SIZE, "...%s", name + len + sizeof "..." - NAME_SIZE);
    text_make_printable(mapped[i].name, strlen(mapped[i].name), "");
    atomic_store(&mapped[i].data, (uintptr_t)data);
}

void mapped_remove(const void *data)
{
    for (size_t i = 0; i < MAX_MAPPED; i++)
        if (atomic_load(&mapped[i].data) == (uintptr_t)data) {
            atomic_store(&mapped[i].data, 0);
            atomic_store(&mapped[i].taken, false);
            return;
        }
}

const char *mapped_name(const void *address)
{
    const uintptr_t at = (uintptr_t)address;
    for (size_t i = 0; i < MAX_MAPPED; i++) {
        const uintptr_t data = atomic_load(&mapped[i].data);
        if (data && at >= data && at - data < mapped[i].size)
            return mapped[i].name;
    }
    return NULL;
}
