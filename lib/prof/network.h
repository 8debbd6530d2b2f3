/* A network between hosts by the alpha-beta model: a message takes a latency plus a time per
 * byte. */
#ifndef BMC_NETWORK_H
#define BMC_NETWORK_H

#include "base/err.h"
#include "decode/comm_model.h"

struct network {
    double latency_ms, byte_ms;
};

/* Parses "100Gb,2us": bits per second per direction, and latency between processes. */
int network_parse(struct network *network, const char *text, struct err *err) MUST_USE;

/* Predicts the milliseconds that the transfers of a decode step between `ranks` ranks take. */
double network_ms(const struct network *network, const struct transfers *transfers, size_t ranks);

#endif
