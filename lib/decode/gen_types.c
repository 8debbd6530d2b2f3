/* Names of the reasons for which sequences end, and the hash of a run's results. */
#include "decode/gen_types.h"

const char *gen_finish_name(enum gen_finish finish)
{
    static const char *const names[] = {"length", "eos", "stop", "cancelled", "error"};
    return names[finish];
}

enum { LOGITS_HASH_BYTES = 8 };

struct hash gen_run_hash(const struct hash *line, size_t n)
{
    static const struct hash none;
    struct hasher hasher;
    hasher_init(&hasher);
    for (size_t i = 0; i < n; i++)
        if (!hash_equal(&line[i], &none))
            hasher_add(&hasher, line[i].byte, LOGITS_HASH_BYTES);
    return hasher_result(&hasher);
}
