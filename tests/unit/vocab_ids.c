/* Prints the token ids of each text on a line: vocab_ids MODEL.bmc < TEXTS. Texts are separated by
 * lines __ggml_vocab_test__. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"

static const char mark[] = "\n__ggml_vocab_test__\n";

static int print_ids(const struct tokenizer *tok, const char *text, size_t len, struct err *err)
{
    struct ids ids = {0};
    const int rc = tokenizer_encode(tok, text, len, true, &ids, err);
    for (size_t i = 0; i < ids.len; i++)
        printf("%s%u", i ? " " : "", ids.id[i]);
    puts("");
    ids_release(&ids);
    return rc;
}

int main(int argc, char **argv)
{
    static char text[1 << 20];
    const size_t len = fread(text, 1, sizeof text - 1, stdin);
    struct model *model = NULL;
    struct err err;
    int rc = argc == 2 ? model_open(&model, argv[1], &err) : err_set(&err, "give a model");
    for (char *at = text, *end; *at && rc == 0; at = *end ? end + sizeof mark - 1 : end) {
        end = strstr(at, mark);
        end = end ? end : text + len;
        rc = print_ids(model->tok, at, (size_t)(end - at), &err);
    }
    if (rc < 0)
        fprintf(stderr, "vocab_ids: %s\n", err.text);
    model_close(model);
    return rc < 0;
}
