/* Sinks: where rows of metrics go. A sink that fails is counted and shown, never stops a run. */
#ifndef BALLAST_SINK_H
#define BALLAST_SINK_H

#include <ballast/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

struct bl_record {
    uint32_t size;
    uint32_t attempt; /* 1-based: starts of this run */
    uint64_t step;
    double time; /* seconds since the epoch */
    uint64_t count;
    const char *const *names; /* (count,) in the order they were given */
    const double *values;     /* NaN and infinities occur */
};

struct bl_sink_ops {
    BL_COMMON_OPS;
    /* After 10 failures in a row it gets fewer rows: a pause of 10, then 20, 40, ... 1024 of them
     * before the next try, until one succeeds. */
    int32_t (*write)(void *self, const struct bl_record *record, struct bl_error *err);
    /* The run ends, for whatever reason; everything written must now be durable. */
    int32_t (*finish)(void *self, struct bl_error *err);
};

#ifdef __cplusplus
}
#endif
#endif
