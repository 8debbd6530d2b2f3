/* The few lines that the C tests share: each check prints one line, main() returns check_result(). */
#ifndef BMC_CHECK_H
#define BMC_CHECK_H

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static int checks_made, checks_failed;

__attribute__((format(printf, 2, 3))) static inline bool check(bool ok, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    checks_made++;
    checks_failed += !ok;
    if (!ok) {
        printf("not ok %d - ", checks_made);
        vprintf(format, args);
        printf("\n");
    }
    va_end(args);
    return ok;
}

static inline bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance; /* false for NaN */
}

/* A run without a check is a failure too. */
static inline int check_result(void)
{
    printf("%d checks, %d failed\n", checks_made, checks_failed);
    return checks_failed > 0 || checks_made == 0;
}

#endif
