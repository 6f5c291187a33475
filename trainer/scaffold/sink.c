/* sink my_plugin: one line a step with the total loss, in <run>/my_plugin.txt.
 *
 * write gets every row of metrics, on every rank; NaN and infinities occur. finish is called when
 * the run ends, for whatever reason: what was written must be durable then. A sink that fails is
 * counted and shown, it never stops a run, so say what went wrong with host->fail.
 *
 * host->info->directory is "" where there is no run (ballast check): write nothing then. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <ballast/sink.h>

struct sink {
    const struct bl_host *host;
    FILE *file; /* NULL: this instance writes nothing */
};

static const struct bl_option table[] = {
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

static void destroy(void *self)
{
    struct sink *s = self;
    if (s->file != NULL)
        fclose(s->file);
    s->host->release(s->host, s);
}

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    char path[4096];
    struct sink *s = host->allocate(host, sizeof *s); /* zeroed */
    (void)options;
    if (s == NULL)
        return host->fail(host, err, "no memory for %u bytes", (unsigned)sizeof *s);
    s->host = host;
    if (host->rank == 0 && host->info->directory[0] != '\0') {
        snprintf(path, sizeof path, "%s/my_plugin.txt", host->info->directory);
        s->file = fopen(path, "a");
        if (s->file == NULL) {
            const int cause = errno;
            destroy(s);
            return host->fail(host, err, "%s: %s", path, strerror(cause));
        }
    }
    *self = s;
    return 0;
}

static int32_t write_row(void *self, const struct bl_record *record, struct bl_error *err)
{
    struct sink *s = self;
    if (s->file == NULL)
        return 0;
    for (uint64_t i = 0; i < record->count; i++)
        if (strcmp(record->names[i], "loss/total") == 0)
            fprintf(s->file, "%llu %.17g\n", (unsigned long long)record->step, record->values[i]);
    if (fflush(s->file) != 0) {
        clearerr(s->file); /* the next row may fit again */
        return s->host->fail(s->host, err, "my_plugin.txt: step %llu not written: %s",
                             (unsigned long long)record->step, strerror(errno));
    }
    return 0;
}

static int32_t finish(void *self, struct bl_error *err)
{
    struct sink *s = self;
    if (s->file != NULL && (fflush(s->file) != 0 || fsync(fileno(s->file)) != 0))
        return s->host->fail(s->host, err, "my_plugin.txt: %s", strerror(errno));
    return 0;
}

static const struct bl_sink_ops ops = {
    .create = create, .destroy = destroy, .write = write_row, .finish = finish};

BL_PLUGIN(BL_KIND_SINK, "my_plugin", "0.1", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, table, 0, NULL);
