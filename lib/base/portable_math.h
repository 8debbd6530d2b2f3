/* Exponential function and logarithm whose bits are the same on every processor and with every C library: they
 * consist of IEEE 754 additions, multiplications and divisions in a fixed order. Errors are below 2 ulp. libm's
 * differ in the last bit between versions, and on x86-64 between processors with and without FMA. */
#pragma once

#include "base/base.h"

double portable_exp(double x);
double portable_log(double x); /* NaN below 0, -INFINITY at 0 */

/* x^y for x >= 0, as exp(y log(x)): errors are up to 1 + |y log(x)| ulp. 0^0 is 1. */
double portable_pow(double x, double y);
