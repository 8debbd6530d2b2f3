/* Makes calls fail: fail.c, as a preloaded library or linked with a test. */
#ifndef BMC_FAIL_H
#define BMC_FAIL_H

/* From now on the at-th call of a kind fails: "memory", "write", "fsync", "rename", "mmap" or "read"; at 0:
 * calls are counted only. NULL: no call fails. */
void fail_next(const char *call, unsigned long at);

unsigned long fail_calls(void); /* since then, until fail_pause() */
void fail_pause(void);

#endif
