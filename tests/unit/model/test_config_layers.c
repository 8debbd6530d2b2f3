/* Configurations whose layers differ: lists as text, what follows for each layer, and what is refused. */
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "model/config/config_keys.h"
#include "tests/unit/check.h"

/* Reads a configuration of `layers` layers with the given lines; false: it is refused, with the reason
 * in `err`. */
static bool read_config(struct config *config, size_t layers, const char *lines, struct err *err)
{
    char text[4096];
    struct conf conf;
    snprintf(text, sizeof text,
             "family test\nlayers %zu\nhidden 8\nembed 8\nheads 2\nkv_heads 1\nhead_dim 4\nffn 8\n"
             "vocab 9\ncontext 64\nnorm rms\nnorm_place before\nnorm_eps 1e-5\nposition rope\n"
             "activation silu\nmlp gated\nbias_qkv false\nbias_out false\nbias_mlp false\n"
             "tied_head false\n%s",
             layers, lines);
    if (conf_parse(&conf, text, strlen(text), "lines", err) < 0)
        return false;
    const int rc = config_read(config, &conf, err);
    conf_release(&conf);
    return rc == 0;
}

/* A letter for each layer: f(ull) or s(liding), then r(ope), l(ocal) or n(ope). */
static void traits(const struct config *config, char *text)
{
    for (size_t layer = 0; layer < config->layers; layer++) {
        const size_t window = config->plan[layer].window;
        check(window == (config->plan[layer].kind == LAYER_SLIDING ? config->keys->window : 0),
              "window %zu of layer %zu", window, layer);
        *text++ = "fs"[config->plan[layer].kind];
        *text++ = "rln"[config->plan[layer].rope];
        *text++ = layer + 1 < config->layers ? ' ' : 0;
    }
}

/* `written`: the lines about layers in the configuration's own text. */
static void check_layers(size_t layers, const char *lines, const char *expected, const char *written)
{
    struct config config, again;
    struct buf text = {0};
    struct err err;
    char found[3 * MAX_LAYERS + 1] = "";
    if (!check(read_config(&config, layers, lines, &err), "%s: %s", lines, err.text))
        return;
    traits(&config, found);
    check(strcmp(found, expected) == 0, "%s: layers are %s, expected %s", lines, found, expected);
    check(config_rope_tables(&config) == (strchr(found, 'l') ? 2 : 1), "%s: tables", lines);
    if (!check(config_write(&config, &text, &err) == 0, "%s: %s", lines, err.text))
        return;
    const char *at = strstr((char *)text.data, "\nlayer_");
    check(at ? strncmp(at + 1, written, strlen(written)) == 0 &&
                   !strstr(at + 1 + strlen(written), "layer_")
             : !*written,
          "%s: written as %.80s, expected %s", lines, at ? at + 1 : "nothing", written);
    struct conf conf;
    if (check(conf_parse(&conf, (char *)text.data, text.len, "written", &err) == 0 &&
                  config_read(&again, &conf, &err) == 0,
              "%s: %s", lines, err.text)) {
        traits(&again, found);
        check(strcmp(found, expected) == 0, "%s: read back as %s", lines, found);
        conf_release(&conf);
        config_close(&again);
    }
    config_close(&config);
    buf_release(&text);
}

/* `expected`: KV heads and elements of a head of each layer; `written`: the lines about them in the configuration's own
 * text, which reads back the same. */
static void check_heads(size_t layers, const char *lines, const char *expected, const char *written)
{
    struct config config;
    struct buf text = {0};
    struct err err;
    char found[256] = "";
    if (!check(read_config(&config, layers, lines, &err), "%s: %s", lines, err.text))
        return;
    for (size_t l = 0, used = 0; l < layers; l++)
        used += (size_t)snprintf(found + used, sizeof found - used, "%s%zux%zu", l ? " " : "",
                                 config.plan[l].kv_heads, config.plan[l].head_dim);
    check(strcmp(found, expected) == 0, "%s: heads are %s, expected %s", lines, found, expected);
    check(config_heads_differ(&config) == (strstr(written, "layer_") != NULL), "%s: sizes", lines);
    if (check(config_write(&config, &text, &err) == 0, "%s: %s", lines, err.text)) {
        const char *at = strstr((char *)text.data, "\nkv_heads");
        check(at && strncmp(at + 1, written, strlen(written)) == 0, "%s: written as %.80s, expected %s",
              lines, at ? at + 1 : "nothing", written);
    }
    config_close(&config);
    buf_release(&text);
}

static void check_refused(size_t layers, const char *lines, const char *reason)
{
    struct config config;
    struct err err = {0};
    check(!read_config(&config, layers, lines, &err), "%s is accepted", lines);
    check(strstr(err.text, reason) != NULL, "%s: \"%s\" does not say \"%s\"", lines, err.text, reason);
}

/* A layer of each size: more sizes than a cache has room for. */
static void check_many_sizes(void)
{
    char lines[1024] = "layer_rope nope ...\nlayer_head_dim";
    for (size_t layer = 0; layer <= KV_MAX_SIZES; layer++)
        snprintf(lines + strlen(lines), sizeof lines - strlen(lines), " %zu%s", 2 + 2 * layer,
                 layer < KV_MAX_SIZES ? "" : "\n");
    check_refused(KV_MAX_SIZES + 1, lines, "layers have more than 64 different sizes of KV heads");
}

int main(void)
{
    check_layers(3, "", "fr fr fr", "");
    check_layers(3, "window 5\n", "sr sr sr", "");
    check_layers(4, "window 5\nwindow_every 2\n", "sr fr sr fr", "");
    check_layers(4, "window 5\nlayer_types sliding full sliding sliding\n", "sr fr sr sr",
                 "layer_types sliding full sliding ...\n");
    check_layers(4, "window 5\nwindow_every 3\nlast_full true\n", "sr sr fr fr", "");
    check_layers(3, "window 5\nlast_full true\nlayer_types sliding full sliding\n", "sr fr fr",
                 "layer_types sliding full ...\n");
    /* What other keys imply is not written. */
    check_layers(4, "window 5\nwindow_every 2\nlayer_types sliding full ...\n", "sr fr sr fr", "");
    check_layers(4, "layer_types full*4\nlayer_rope rope ...\n", "fr fr fr fr", "");
    /* A repeated pattern, cut at the last layer; names of Hugging Face; the shortest text. */
    check_layers(8, "window 5\nlayer_types sliding_attention*2,full_attention,...\n",
                 "sr sr fr sr sr fr sr sr", "layer_types sliding*2 full ...\n");
    check_layers(6, "window 5\nlayer_types sliding full sliding full sliding full\n",
                 "sr fr sr fr sr fr", "layer_types sliding full ...\n");
    check_layers(3, "window 5\nlayer_types full*3\n", "fr fr fr", "layer_types full ...\n");
    /* Rotations: by list, by number, by kind. */
    check_layers(4, "layer_rope 1 1 1 0\n", "fr fr fr fn", "layer_rope rope*3 nope\n");
    check_layers(4, "rope_every 2\n", "fr fn fr fn", "");
    check_layers(4, "rope_every 2\nlayer_rope rope nope rope nope\n", "fr fn fr fn", "");
    check_layers(3, "window 5\nwindow_every 3\nrope_sliding local\n", "sl sl fr", "");
    check_layers(3, "window 5\nwindow_every 3\nrope_full nope\n", "sr sr fn", "");
    check_layers(3, "rope_full nope\n", "fr fr fr", ""); /* not of a model without window */
    check_layers(3, "layer_rope local nope rope\n", "fl fn fr", "layer_rope local nope rope\n");

    /* KV heads and sizes of heads by layer; equal ones are no list. */
    check_heads(4, "layer_kv_heads 2 1 ...\n", "2x4 1x4 2x4 1x4",
                "kv_heads 2\nhead_dim 4\nlayer_kv_heads 2 1 ...\nffn");
    check_heads(3, "layer_kv_heads 2*3\n", "2x4 2x4 2x4", "kv_heads 2\nhead_dim 4\nffn");
    check_heads(3, "layer_head_dim 4,6,4\nlayer_rope rope nope rope\n", "1x4 1x6 1x4",
                "kv_heads 1\nhead_dim 6\nlayer_head_dim 4 6 ...\nffn");
    check_heads(3, "layer_kv_heads 1 2 2\nlayer_head_dim 4 6 2\nlayer_rope rope nope nope\n",
                "1x4 2x6 2x2",
                "kv_heads 2\nhead_dim 6\nlayer_kv_heads 1 2*2\nlayer_head_dim 4 6 2\nffn");
    check_refused(3, "layer_kv_heads 1 3 1\n", "2 query heads are not a multiple of 3 KV heads");
    check_refused(3, "layer_kv_heads 1 0 1\n",
                  "\"layer_kv_heads\" is 0 for layer 1, expected a number from 1");
    check_refused(3, "layer_kv_heads 1 x 1\n", "is x for layer 1, expected a number");
    check_refused(3, "layer_head_dim 4 6 4\n", "others with the same rotation have");
    check_many_sizes();

    check_refused(3, "window 5\nlayer_types full\n", "\"layer_types\" has 1 entries for 3 layers");
    check_refused(3, "window 5\nlayer_types full*4\n", "more than 3 entries for 3 layers");
    check_refused(3, "window 5\nlayer_types full*3 full\n", "more than 3 entries");
    check_refused(3, "layer_types full*18446744073709551615 full*4\n", "more than 3 entries");
    check_refused(3, "layer_types full*18446744073709551617 full\n", "for layer 0");
    check_refused(3, "layer_types full*0 full*3\n", "is full*0 for layer 0");
    check_refused(3, "layer_types full*-1 full*4\n", "is full*-1 for layer 0");
    check_refused(3, "layer_types full*\n", "is full* for layer 0");
    check_refused(3, "layer_types full sparse full\n", "is sparse for layer 1");
    check_refused(3, "layer_types ...\n", "is ... for layer 0");
    check_refused(3, "layer_types full ... full\n", "is ... for layer 1");
    check_refused(3, "layer_types full sliding full\n",
                  "sliding attention in layer 1, but there is no window");
    check_refused(3, "layer_types\n", "has 0 entries for 3 layers");
    check_refused(3, "layer_rope rope,2,rope\n", "\"layer_rope\" is 2 for layer 1");
    return check_result();
}
