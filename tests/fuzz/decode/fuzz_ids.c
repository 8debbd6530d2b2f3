/* Lists of token ids: accepted ones survive writing and parsing. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/ids.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ids ids = {0}, again = {0};
    struct buf text = {0}, list = {0};
    struct err err;
    if (buf_add(&text, data, size, &err) == 0 && ids_parse(&ids, text.data, &err) == 0) {
        for (size_t i = 0; i < ids.len; i++)
            if (buf_addf(&list, &err, i ? ", %u" : "%u", ids.id[i]) < 0)
                abort();
        if (ids_parse(&again, list.data ? list.data : "", &err) < 0 || again.len != ids.len ||
            (ids.len && memcmp(again.id, ids.id, ids.len * sizeof *ids.id) != 0))
            abort();
    }
    ids_release(&ids);
    ids_release(&again);
    buf_release(&text);
    buf_release(&list);
    return 0;
}
