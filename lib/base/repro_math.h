/* Elementary functions with the same bits on every machine. Those of libm differ in last digits between its
 * versions, and between processors with and without FMA instructions; these use operations that IEEE 754 rounds
 * exactly, in one order (the Makefile has -ffp-contract=off). Errors are below 2 ulp; those of repro_pow() below
 * 2 + |y log x| ulp, of repro_tanh() below 2^8 ulp. Whatever logits or samples depend on is computed by these, or in kernels (kernel/kernel.h);
 * sqrt(), floor() and the like are exact everywhere. */
#pragma once

double repro_exp(double x);
/* Natural logarithm: -INFINITY for 0, NaN below. */
double repro_log(double x);
double repro_log1p(double x);
/* x^y, x >= 0; x^0 is 1. */
double repro_pow(double x, double y);
double repro_tanh(double x);
/* The standard normal distribution function, |x| <= 8; the error is below 2^-48. */
double repro_normal(double x);
/* 1 / (1 + e^-x) */
double repro_sigmoid(double x);
/* |x| < 2^21; the error, relative to 1, grows by |x| 2^-85. NaN for infinities. */
void repro_sincos(double x, double *sine, double *cosine);
