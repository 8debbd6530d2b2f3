/* Recognises unsupported model formats in a folder; to add one, add a row to the table `forms`. */
#include "format/diagnose_folder.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static const struct form {
    const char *begin, *end; /* prefix and suffix of the file name */
    const char *index;       /* the row applies only if this file is missing; NULL: always */
    const char *what;        /* description and advice, after the file name */
} forms[] = {
    {"", ".gguf", NULL, "a GGUF file: pass that file to bmc-convert"},
    {"model-00001-of-", ".safetensors", "model.safetensors.index.json",
     "sharded weights without their index: add model.safetensors.index.json to the folder"},
    {"pytorch_model-00001-of-", ".bin", "pytorch_model.bin.index.json",
     "sharded weights without their index: add pytorch_model.bin.index.json to the folder"},
    {"consolidated.", ".pth", NULL,
     "a checkpoint in its authors' own format: use the Hugging Face folder of the same model, with "
     "config.json and model.safetensors"},
    {"consolidated", ".safetensors", NULL,
     "a checkpoint in its authors' own format: use the Hugging Face folder of the same model, with "
     "config.json and model.safetensors"},
    {"tf_model", ".h5", NULL,
     "TensorFlow weights, which are not supported: save the model as safetensors "
     "(from_pretrained with from_tf=True, then save_pretrained)"},
    {"flax_model", ".msgpack", NULL,
     "Flax weights, which are not supported: save the model as safetensors "
     "(from_pretrained with from_flax=True, then save_pretrained)"},
    {"", ".onnx", NULL,
     "an ONNX graph, which is not supported: convert the original model, as safetensors"},
};

static bool is_of(const struct form *form, const char *name)
{
    const size_t len = strlen(name), begin = strlen(form->begin), end = strlen(form->end);
    return len >= begin + end && strncmp(name, form->begin, begin) == 0 &&
           strcmp(name + len - end, form->end) == 0;
}

static bool has(struct dirent *const *files, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(files[i]->d_name, name) == 0)
            return true;
    return false;
}

/* The name of the first file in the folder that has this form, or NULL. */
static const char *find(struct dirent *const *files, int n, const struct form *form)
{
    if (form->index && has(files, n, form->index))
        return NULL;
    for (int i = 0; i < n; i++)
        if (is_of(form, files[i]->d_name))
            return files[i]->d_name;
    return NULL;
}

int diagnose_folder(const char *path, struct err *err)
{
    struct dirent **files = NULL;
    const int n = scandir(path, &files, NULL, alphasort);
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(forms) && rc == 0; i++) {
        const char *name = find(files, n, &forms[i]);
        if (name)
            rc = err_set(err, "%s: contains %s, %s", path, name, forms[i].what);
    }
    for (int i = 0; i < n; i++)
        free(files[i]);
    free(files);
    return rc;
}
