/* Explains why a folder cannot be converted: it holds a model in an unsupported form. */
#ifndef BMC_DIAGNOSE_FOLDER_H
#define BMC_DIAGNOSE_FOLDER_H

#include "base/err.h"

/* Fails with the first unsupported form found, and what to do; returns 0 if none is found. */
int diagnose_folder(const char *path, struct err *err) MUST_USE;

#endif
