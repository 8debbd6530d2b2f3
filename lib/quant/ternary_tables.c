/* Tables of ternary digits. */
#include "quant/ternary_tables.h"

#include "quant/ternary.h"

uint8_t ternary_four[256], ternary_fifth[256], ternary_three[64];

__attribute__((constructor)) static void fill_tables(void)
{
    for (unsigned f = 0; f < 256; f++) {
        for (size_t line = 0; line < 4; line++)
            ternary_four[f] |= (uint8_t)(ternary_digit_of(f, line) << 2 * line);
        ternary_fifth[f] = (uint8_t)ternary_digit_of(f, 4);
    }
    for (unsigned number = 0; number < 64; number++)
        for (size_t line = 0; line < TERNARY_REST; line++)
            ternary_three[number] |=
                (uint8_t)(ternary_digit_of(ternary_fraction3(number & 31), line) << 2 * line);
}
