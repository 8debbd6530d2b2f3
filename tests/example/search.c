/* Embedding search: prints the lines of standard input that are most similar to a query.
 *
 *   cc search.c $(pkg-config --cflags --libs bmc) -o search
 *   ./search MODEL.bmc QUERY [NUMBER] <lines */
#include <bmc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct found {
    char *line;
    float similarity; /* cosine of the angle between its embedding and the query's */
};

static int embed(struct bmc_context *context, const struct bmc_model *model, const char *text,
                 float *embedding, struct bmc_error *error)
{
    uint32_t *ids;
    size_t n;
    int rc = bmc_tokenize(model, text, strlen(text), &ids, &n, error);
    if (rc == 0)
        rc = bmc_embed(context, ids, n, BMC_POOL_MEAN, 1, embedding, error);
    free(ids);
    return rc;
}

static float dot(const float *a, const float *b, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static int by_similarity(const void *a, const void *b)
{
    const float x = ((const struct found *)a)->similarity, y = ((const struct found *)b)->similarity;
    return (x < y) - (x > y);
}

/* Reads all lines and compares them with the query; returns their number, -1 on failure. */
static long compare_lines(struct bmc_context *context, const struct bmc_model *model, const char *query,
                          struct found **found, struct bmc_error *error)
{
    const size_t hidden = bmc_model_hidden(model);
    float *wanted = calloc(2 * hidden, sizeof *wanted), *embedding = wanted + hidden;
    char *line = NULL;
    size_t cap = 0;
    long n = 0;
    int rc = wanted ? embed(context, model, query, wanted, error) : -1;
    while (rc == 0 && getline(&line, &cap, stdin) > 0) {
        line[strcspn(line, "\n")] = 0;
        struct found *more = *line ? realloc(*found, (size_t)(n + 1) * sizeof *more) : NULL;
        if (!more)
            continue;
        *found = more;
        rc = embed(context, model, line, embedding, error);
        more[n].similarity = dot(wanted, embedding, hidden);
        more[n++].line = strdup(line);
    }
    free(line);
    free(wanted);
    return rc < 0 ? -1 : n;
}

int main(int argc, char **argv)
{
    struct bmc_model *model = NULL;
    struct bmc_context *context = NULL;
    struct bmc_error error = {"out of memory"};
    struct found *found = NULL;
    const long most = argc == 4 ? strtol(argv[3], NULL, 10) : 3;
    long n = -1;
    if (argc < 3 || argc > 4)
        return fprintf(stderr, "usage: search MODEL.bmc QUERY [NUMBER] <lines\n"), 2;
    if (bmc_model_open(&model, argv[1], &error) == 0 &&
        bmc_context_open(&context, model, NULL, &error) == 0)
        n = compare_lines(context, model, argv[2], &found, &error);
    if (n < 0)
        fprintf(stderr, "search: %s\n", error.text);
    if (n > 0)
        qsort(found, (size_t)n, sizeof *found, by_similarity);
    for (long i = 0; i < n; i++) {
        if (i < most)
            printf("%.4f %s\n", (double)found[i].similarity, found[i].line);
        free(found[i].line);
    }
    free(found);
    bmc_context_close(context);
    bmc_model_close(model);
    return n < 0;
}
