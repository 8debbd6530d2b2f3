/* Names of mapped files by address. */
#include <string.h>

#include "base/file.h"
#include "tests/unit/check.h"

enum { FILES = 200, SIZE = 4096 };

static char memory[FILES + 1][SIZE];

static bool is_called(const void *address, const char *name)
{
    const char *found = mapped_name(address);
    return name ? found && strcmp(found, name) == 0 : !found;
}

int main(void)
{
    char name[1001];
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "file-%d", i);
        mapped_add(memory[i], SIZE, name);
    }
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "file-%d", i);
        check(is_called(memory[i], name) && is_called(memory[i] + SIZE - 1, name), "%s is not found",
              name);
    }
    check(is_called(memory[FILES], NULL) && is_called(NULL, NULL), "an address outside all mappings");
    mapped_remove(memory[7]);
    check(is_called(memory[7], NULL) && is_called(memory[8], "file-8"), "an unmapped file");
    mapped_add(memory[7], 1, "a\nb");
    check(is_called(memory[7], "a?b") && is_called(memory[7] + 1, NULL),
          "its slot is reused for a file of one byte, with a line feed in its name");
    memset(name, 'x', sizeof name - 1);
    strcpy(name + sizeof name - 5, "/end");
    mapped_add(memory[FILES], SIZE, name);
    const char *found = mapped_name(memory[FILES]);
    check(found && strlen(found) < 512 && strncmp(found, "...x", 4) == 0 &&
              strcmp(found + strlen(found) - 5, "x/end") == 0,
          "the end of a long name");
    for (int i = 0; i < FILES; i++) /* more than the table holds */
        mapped_add(memory[i], SIZE, "again");
    check(is_called(memory[8], "file-8"), "the first of two mappings at an address");
    return check_result();
}
