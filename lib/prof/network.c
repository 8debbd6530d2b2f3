/* Predicts transfer times on a network. */
#include "prof/network.h"

#include <string.h>

#include "base/number.h"

/* Messages above EAGER_BYTES, Open MPI's eager limit over TCP, wait for the receiver (rendezvous
 * protocol), which takes EXCHANGES latencies instead of one. */
enum { EAGER_BYTES = 64 << 10, EXCHANGES = 3 };

struct network_unit {
    const char *name;
    double size;
};

static const struct network_unit rates[] = {
    {"Kb", 1e3}, {"Mb", 1e6}, {"Gb", 1e9}, {"Tb", 1e12}, {NULL, 0}};
static const struct network_unit times_ms[] = {
    {"ns", 1e-6}, {"us", 1e-3}, {"ms", 1}, {"s", 1e3}, {NULL, 0}};

/* Parses a number with a unit, as "2.5us"; false: malformed. */
static bool parse_quantity(const char *text, size_t len, const struct network_unit *unit, double *value)
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
                       "\"%s\" is not RATE,LATENCY, as 100Gb,2us: bits per second (Kb, Mb, Gb or Tb), "
                       "and ns, us, ms or s",
                       text);
    network->byte_ms = 8e3 / bits_s;
    return 0;
}

/* Rounds of messages in an all-gather by recursive doubling: ceil(log2(ranks)). */
static size_t rounds(size_t ranks)
{
    size_t n = 0;
    while ((size_t)1 << n < ranks)
        n++;
    return n;
}

static double transfer_ms(const struct network *network, const struct transfer *t, size_t ranks)
{
    const bool whole = t->kind == TRANSFER_HOP || t->kind == TRANSFER_COMMAND;
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
