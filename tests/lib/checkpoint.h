/* A checkpoint written at once, by one process. */
#ifndef TESTS_LIB_CHECKPOINT_H
#define TESTS_LIB_CHECKPOINT_H

#include "checkpoint/saver.h"

/* <directory>/<step>; of the older ones the `keep` newest stay, 0: all. */
static inline int write_checkpoint(const char *directory, const struct bl_checkpoint *c,
                                   uint64_t keep, struct bl_error *err)
{
    struct bl_saver_setup setup = {.directory = directory, .keep = keep};
    struct bl_saver_report report = {0};
    struct bl_saver *saver = NULL;
    int rc = bl_saver_make(&setup, &saver, err);

    if (rc == 0)
        rc = bl_saver_begin(saver, c, BL_SAVE_CHECKPOINT, err);
    if (rc == 0)
        rc = bl_saver_wait(saver, &report, err);
    if (rc == 0 && report.event != BL_SAVER_SAVED)
        rc = bl_error_set(err, report.error.code, "%s", report.error.text);
    bl_saver_free(saver);
    return rc;
}

#endif
