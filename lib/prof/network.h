/* A network between hosts by the alpha-beta model: a message takes a latency, and a time for each of its bytes. */
#ifndef BMC_NETWORK_H
#define BMC_NETWORK_H

#include "base/err.h"
#include "decode/sent.h"

struct network {
    double latency_ms, byte_ms;
};

/* "100Gb,2us": bits a second that a host can send, and receive meanwhile, and the latency from program to program. */
int network_parse(struct network *network, const char *text, struct err *err) MUST_USE;

/* What a step's transfers add to it. */
double network_ms(const struct network *network, const struct transfers *transfers, size_t ranks);

#endif
