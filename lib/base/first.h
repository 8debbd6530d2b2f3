/* What every file begins with, as the Makefile includes it first: C's headers that most files use, and banned
 * functions, of which using one is a compile error. */
#pragma once

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BANNED(name) use_of_##name##_is_banned

#undef strcat
#define strcat(to, from) BANNED(strcat)
#undef strncat
#define strncat(to, from, n) BANNED(strncat)
#undef strncpy
#define strncpy(to, from, n) BANNED(strncpy)
#undef sprintf
#define sprintf(...) BANNED(sprintf)
#undef vsprintf
#define vsprintf(...) BANNED(vsprintf)
#undef atoi
#define atoi(text) BANNED(atoi)
#undef atol
#define atol(text) BANNED(atol)
#undef atof
#define atof(text) BANNED(atof)
#undef strtok
#define strtok(text, set) BANNED(strtok)
