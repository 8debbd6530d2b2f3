/* Digits of ternary types for lookups in registers, two bits each. Filled before main(). */
#pragma once

/* The first four digits of a fraction (quant/ternary.h), its fifth, and the three of a number. */
extern uint8_t ternary_four[256], ternary_fifth[256], ternary_three[64];
