/* Reads the JSON file of expected results; the process ends if there is none. */
#ifndef BMC_TEST_OPEN_JSON_H
#define BMC_TEST_OPEN_JSON_H

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"

static inline json_t *open_json(const char *path)
{
    struct err err;
    struct file_map map;
    json_t *root = NULL;
    if (file_map(&map, path, &err) < 0 ||
        json_parse((const char *)map.data, map.size, path, &root, &err) < 0) {
        printf("not ok - %s\n", err.text);
        exit(1);
    }
    file_unmap(&map);
    return root;
}

#endif
