/* Seeds of random numbers. */
#include "base/seed.h"

#include <string.h>
#include <sys/random.h>

#include "base/number.h"

bool seed_parse(const char *text, struct seed *seed)
{
    size_t value = 0;
    const bool draw = strcmp(text, "-1") == 0;
    _Static_assert(sizeof(size_t) == sizeof(uint64_t), "sizes have 64 bits");
    if (!draw && !parse_size(text, &value))
        return false;
    *seed = (struct seed){value, true, draw};
    return true;
}

int seed_draw(uint64_t *value, struct err *err)
{
    uint32_t drawn;
    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn)
        return err_errno(err, "cannot draw a random seed");
    *value = drawn;
    return 0;
}
