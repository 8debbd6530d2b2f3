/* Quantisation by least squares: types of one level of scales. */
#include "quant/quantize.h"

#include <math.h>

#include "quant/quantize_fit.h"
#include "quant/quantize_levels.h"

/* Stores a group's scale and min as element `index` of a row's scale arrays: scales as f32 or f16,
 * mins as f16. */
static void store_scale(unsigned char *row, enum dtype type, size_t n, size_t index,
                        struct quant_scale v)
{
    const struct scale_array *scales = quant_types[type].scales;
    unsigned char *scale =
        row + quant_row_scales_at(type, n, SCALE_MAIN) + index * scales[SCALE_MAIN].bytes;
    unsigned char *offset =
        row + quant_row_scales_at(type, n, SCALE_MIN) + index * scales[SCALE_MIN].bytes;
    if (scales[SCALE_MAIN].bytes == sizeof v.scale)
        memcpy(scale, &v.scale, sizeof v.scale);
    else
        quant_store_f16(scale, v.scale);
    if (scales[SCALE_MIN].bytes)
        quant_store_f16(offset, v.min);
}

bool quantize(void *row, enum dtype type, const float *x, size_t n, const float *weight)
{
    const size_t group = quant_group(type, n);
    if (quant_types[type].scales[SCALE_D].bytes)
        return quantize_levels(row, type, x, n, weight, false);
    memset(row, 0, quant_row_q_bytes(type, n));
    for (size_t from = 0; from < n; from += group) {
        const struct fit_range range =
            fit_range(type, x + from, weight ? weight + from : NULL, size_min(group, n - from));
        const struct fit_best best = fit_search(&range);
        if (!isfinite(best.error))
            return false;
        fit_store(row, type, &range, best.v, from);
        store_scale(row, type, n, from / group, best.v);
    }
    return quant_finite(type, row, n);
}
