/* Folders that hold a model in a form that is not read as a folder. */
#ifndef BMC_FOLDER_H
#define BMC_FOLDER_H

#include "base/err.h"

/* An error that says what lies in a folder and what to do with it; 0 where nothing in it is known. */
int folder_refuse(const char *path, struct err *err) MUST_USE;

#endif
