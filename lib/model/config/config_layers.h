/* Values of the configuration that differ by layer, as text: "sliding*5 full ..." */
#ifndef BMC_CONFIG_LAYERS_H
#define BMC_CONFIG_LAYERS_H

#include "model/config/config_keys.h"

/* How a list is spelled: its key, and the names of its values, which end in NULL; alias[i] is the value
 * of names[i], NULL: i. Without names, values are numbers from min to max. */
struct layer_words {
    const char *key;
    const char *const *names;
    const int *alias;
    size_t min, max;
};

/* Reads runs NAME or NAME*COUNT, separated by blanks or commas, for `layers` layers; the word "..." at
 * the end repeats the runs before it. "none" is the empty list. The result is the shortest list with
 * these values. `name` is the source of the text, for errors. */
int config_read_layers(struct layer_list *list, const char *text, const struct layer_words *words,
                       size_t layers, const char *name, struct err *err) MUST_USE;

/* Writes a line with the key and a list of `layers` layers, in the form that config_read_layers()
 * reads. */
int config_write_layers(const struct layer_list *list, const struct layer_words *words, size_t layers,
                        struct buf *text, struct err *err) MUST_USE;

/* Empties lists that only repeat the defaults of other keys, so that equal configurations have equal
 * text, and checks what a plan of the layers needs. */
int config_finish_layers(struct config_text *text, const char *name, struct err *err) MUST_USE;

/* Checks that layers with the same rotation have heads of the same size. Needs the plan. */
int config_check_rotations(const struct config *config, const char *name, struct err *err) MUST_USE;

/* Sets the keys of layers with recurrent state to their defaults if there are none; before there is a plan. */
void config_reset_state(struct config_text *text);

/* Checks the keys of layers with recurrent state. Needs the plan. */
int config_check_state(const struct config *config, const char *name, struct err *err) MUST_USE;

#endif
