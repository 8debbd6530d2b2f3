/* What lies in a folder that has no weights as Hugging Face writes them. To know one more form is a row of the table. */
#include "format/folder.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static const struct form {
    const char *begin, *end; /* of the file's name */
    const char *index;       /* a row for folders that lack this file; NULL: for all */
    const char *what;        /* it is, and what to do; the file's name stands before it */
} forms[] = {
    {"", ".gguf", NULL, "a GGUF file: give bmc-convert that file"},
    {"model-00001-of-", ".safetensors", "model.safetensors.index.json",
     "the first of its weight files, but not their index, model.safetensors.index.json: fetch it, "
     "it belongs beside them"},
    {"pytorch_model-00001-of-", ".bin", "pytorch_model.bin.index.json",
     "the first of its weight files, but not their index, pytorch_model.bin.index.json: fetch it, "
     "it belongs beside them"},
    {"consolidated.", ".pth", NULL,
     "a checkpoint as its makers write it, not Hugging Face: take the folder of the same model that "
     "has "
     "config.json and model.safetensors"},
    {"consolidated", ".safetensors", NULL,
     "a checkpoint as its makers write it, not Hugging Face: take the folder of the same model that "
     "has "
     "config.json and model.safetensors"},
    {"tf_model", ".h5", NULL,
     "weights of TensorFlow, which are not read: save the model as safetensors "
     "(from_pretrained with from_tf=True, then save_pretrained)"},
    {"flax_model", ".msgpack", NULL,
     "weights of Flax, which are not read: save the model as safetensors "
     "(from_pretrained with from_flax=True, then save_pretrained)"},
    {"", ".onnx", NULL,
     "a graph of ONNX, which is not read: convert the model that it was made from, as safetensors"},
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

/* The first file of that form, or NULL. */
static const char *find(struct dirent *const *files, int n, const struct form *form)
{
    if (form->index && has(files, n, form->index))
        return NULL;
    for (int i = 0; i < n; i++)
        if (is_of(form, files[i]->d_name))
            return files[i]->d_name;
    return NULL;
}

int folder_refuse(const char *path, struct err *err)
{
    struct dirent **files = NULL;
    const int n = scandir(path, &files, NULL, alphasort);
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(forms) && rc == 0; i++) {
        const char *name = find(files, n, &forms[i]);
        if (name)
            rc = err_set(err, "%s: holds %s, %s", path, name, forms[i].what);
    }
    for (int i = 0; i < n; i++)
        free(files[i]);
    free(files);
    return rc;
}
