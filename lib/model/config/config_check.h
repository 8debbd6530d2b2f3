/* Inside config*.c: limits of keys, and checks of keys together. */
#ifndef BMC_CONFIG_CHECK_H
#define BMC_CONFIG_CHECK_H

#include "model/config.h"

enum { MAX_WIDTH = 1 << 20, MAX_VOCAB = 1 << 24 };

/* Names of enum norm_place and block_order. */
extern const char *const config_place_names[], *const config_block_names[];

/* Checks conditions that concern several keys; `name` is the configuration's file, for the error. */
int config_check(const struct config *config, const char *name, struct err *err) MUST_USE;

#endif
