/* EOS ids. */
#include "model/convert/eos.h"

#include <math.h>

int eos_read(struct config *config, const json_t *generation, const json_t *json, const char *folder,
             struct err *err)
{
    const json_t *eos = json_at(generation, "eos_token_id");
    if (!eos || json_is_null(eos))
        eos = json_at(json, "eos_token_id");
    const size_t n = json_is_array(eos) ? json_array_size(eos) : eos && !json_is_null(eos);
    config->n_eos = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(eos) ? json_array_get(eos, i) : eos;
        const double value =
            json_is_number(id) ? json_number_value(id) : -1; /* json_parse() may yield 2.0 */
        if (n > MAX_EOS || !(value >= 0 && value < (double)config->vocab) || value != floor(value))
            return err_set(err, "%s: eos_token_id must be at most %d ids below %zu", folder, MAX_EOS,
                           config->vocab);
        config->eos[config->n_eos++] = (uint32_t)value;
    }
    return 0;
}
