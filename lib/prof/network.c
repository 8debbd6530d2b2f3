/* What messages take on a network. */
#include "prof/network.h"

#include <string.h>

#include "base/number.h"

/* Larger messages wait until the receiver has said that it is there: Open MPI's limit over TCP. */
enum { EAGER_BYTES = 64 << 10, EXCHANGES = 3 };

struct unit {
    const char *name;
    double size;
};

static const struct unit rates[] = {{"Kb", 1e3}, {"Mb", 1e6}, {"Gb", 1e9}, {"Tb", 1e12}, {NULL, 0}};
static const struct unit times_ms[] = {{"ns", 1e-6}, {"us", 1e-3}, {"ms", 1}, {"s", 1e3}, {NULL, 0}};

/* "2.5us"; false: it is none. */
static bool parse_quantity(const char *text, size_t len, const struct unit *unit, double *value)
{
    char number[24] = "";
    const size_t digits = strspn(text, "0123456789.");
    if (digits >= sizeof number || digits > len)
        return false;
    memcpy(number, text, digits);
    while (unit->name &&
           (strlen(unit->name) != len - digits || memcmp(unit->name, text + digits, len - digits) != 0))
        unit++;
    if (!unit->name || !parse_double(number, value))
        return false;
    *value *= unit->size;
    return true;
}

int network_parse(struct network *network, const char *text, struct err *err)
{
    const size_t len = strcspn(text, ",");
    double bits_s;
    if (!parse_quantity(text, len, rates, &bits_s) || bits_s <= 0 || !text[len] ||
        !parse_quantity(text + len + 1, strlen(text + len + 1), times_ms, &network->latency_ms))
        return err_set(err,
                       "\"%s\" is no rate and latency, as 100Gb,2us: bits a second (Kb, Mb, Gb or Tb), "
                       "and ns, us, ms or s",
                       text);
    network->byte_ms = 8e3 / bits_s;
    return 0;
}

/* Messages one behind the other until everybody has what all have. */
static size_t rounds(size_t ranks)
{
    size_t n = 0;
    while ((size_t)1 << n < ranks)
        n++;
    return n;
}

static double transfer_ms(const struct network *network, const struct transfer *t, size_t ranks)
{
    const bool whole = t->kind == TRANSFER_HOP || t->kind == TRANSFER_ORDER;
    const double piece = (double)t->bytes / (whole ? 1 : (double)ranks);
    const size_t pieces = t->kind == TRANSFER_HOP ? 1 : ranks - 1;
    const size_t messages = (t->kind == TRANSFER_GATHER ? rounds(ranks) : 1) *
                            (piece > EAGER_BYTES ? EXCHANGES : 1) * t->waits;
    return (double)messages * network->latency_ms +
           piece * (double)(pieces * t->times) * network->byte_ms;
}

double network_ms(const struct network *network, const struct transfers *transfers, size_t ranks)
{
    double ms = 0;
    for (size_t i = 0; i < transfers->n; i++)
        ms += transfer_ms(network, &transfers->list[i], ranks);
    return ms;
}
