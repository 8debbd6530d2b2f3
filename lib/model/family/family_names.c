/* Replaces the family's `tensor` lines by the source's own tensor names. */
#include <string.h>

#include "model/family/family_words.h"

static int add_name(struct family *family, const struct weight_kind *kind, const char *line,
                    struct err *err)
{
    struct words w;
    struct tensor_line tensor = {.kind = kind};
    if (!words_split(&w, line) || w.n < 1 || strlen(w.word[0]) >= TENSOR_NAME_SIZE ||
        !tensor_transform_parse(&tensor.transform, kind, w.word + 1, w.n - 1))
        return err_set(err, "%s: \"%s\" is not a usable tensor line for %s", family->conf.name, line,
                       kind->name);
    strcpy(tensor.pattern, w.word[0]);
    tensor.transform.per_expert = family_names_experts(tensor.pattern);
    if (mem_grow(&family->tensor, &family->cap_tensors, family->n_tensors, sizeof tensor, err) < 0)
        return -1;
    family->tensor[family->n_tensors++] = tensor;
    return 0;
}

int family_take_names(struct family *family, const struct weight_source *source, struct err *err)
{
    char line[TENSOR_NAME_SIZE];
    if (!source->format->tensor_line)
        return 0;
    family->n_tensors = 0;
    for (size_t i = 0; i < n_weight_kinds; i++)
        for (size_t nth = 0;
             source->format->tensor_line(source, weight_kinds[i].name, nth, line, sizeof line); nth++)
            if (add_name(family, &weight_kinds[i], line, err) < 0)
                return -1;
    return 0;
}
