#include "attempts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/strings.h"

enum { ATTEMPT_BYTES = 256 << 10 };

struct call {
    int (*f)(void *context, const char *key, const struct bl_plugin_instance *plugin);
    void *context;
};

static int call(const struct call *c, const struct bl_plugin_instance *i)
{
    char key[160];
    snprintf(key, sizeof key, "%s.%s", bl_kind_name(i->plugin->kind), i->name);
    return c->f(c->context, key, i);
}

int bl_attempts_each_plugin(const struct bl_setup *s,
                            int (*f)(void *context, const char *key,
                                     const struct bl_plugin_instance *plugin),
                            void *context)
{
    const struct call c = {f, context};
    const struct bl_plugin_instance *single[] = {s->train, s->precision, s->schedule, s->optimizer};
    const struct bl_plugin_list *lists[] = {&s->regularizers, &s->guards, &s->monitors, &s->sinks};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof single / sizeof *single; i++)
        rc = call(&c, single[i]);
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (size_t i = 0; rc == 0 && i < lists[l]->count; i++)
            rc = call(&c, lists[l]->items[i]);
    return rc;
}

static int add_plugin(void *context, const char *key, const struct bl_plugin_instance *plugin)
{
    char sum[24];
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)bl_library_checksum(plugin->library));
    return json_object_set_new(context, key, json_string(sum));
}

/* "2026-01-31T23:59:59Z" */
static void now_text(char out[32])
{
    time_t seconds = (time_t)bl_clock_wall();
    struct tm utc = {0};
    gmtime_r(&seconds, &utc);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

/* Into the file that is there: it is the claim, and another file in its place would be another's.
 */
static int fill(const char *file, const char *text, size_t n, struct bl_error *err)
{
    int fd = open(file, O_WRONLY | O_TRUNC | O_CLOEXEC), rc = 0;
    if (fd < 0 || bl_write_all(fd, text, n) < 0 || fsync(fd) < 0)
        rc = bl_error_set(err, BL_EXIT_FAILED, "%s: %s", file, strerror(errno));
    if (fd >= 0)
        close(fd);
    return rc;
}

int bl_attempts_write(const char *path, uint32_t attempt, const struct bl_setup *s, uint64_t step,
                      json_t *notes, struct bl_error *err)
{
    char host[256] = "", started[32], *text = NULL;
    char *file = bl_format("%s/attempts/%u", path, attempt);
    json_t *plugins = json_object();
    gethostname(host, sizeof host - 1);
    now_text(started);
    json_t *j = NULL;
    if (bl_attempts_each_plugin(s, add_plugin, plugins) == 0)
        j = json_pack("{s:i, s:s, s:s, s:s, s:I, s:I, s:O}", "attempt", (int)attempt, "started",
                      started, "program", "ballast " BL_VERSION, "host", host, "pid",
                      (json_int_t)getpid(), "resumed_step", (json_int_t)step, "plugins", plugins);
    if (j && notes)
        json_object_update(j, notes);
    if (j)
        text = json_dumps(j, JSON_INDENT(2));
    int rc = file && text ? fill(file, text, strlen(text), err)
                          : bl_error_set(err, BL_EXIT_FAILED, "%s/attempts: out of memory", path);
    json_decref(j);
    json_decref(plugins);
    free(text);
    free(file);
    return rc;
}

/* Of a file that cannot be read, its number; NULL when there is none. */
static json_t *read_attempt(const char *path, uint32_t attempt)
{
    char *file = bl_format("%s/attempts/%u", path, attempt), *text = NULL;
    size_t n = 0;
    json_t *j = NULL;
    int gone = file != NULL && access(file, F_OK) < 0 && errno == ENOENT;
    if (file && !gone && bl_read_file(file, ATTEMPT_BYTES, &text, &n, NULL) == 0)
        j = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    free(file);
    if (json_is_object(j) || gone)
        return j;
    json_decref(j);
    return json_pack("{s:i}", "attempt", (int)attempt);
}

json_t *bl_attempts_history(const char *path, uint32_t attempt)
{
    uint32_t first = attempt > BL_ATTEMPTS_KEPT ? attempt - BL_ATTEMPTS_KEPT + 1 : 1;
    json_t *all = json_array();
    for (uint32_t n = first; all && n <= attempt; n++) {
        json_t *one = read_attempt(path, n);
        if (one != NULL)
            json_object_del(one, "plugins");
        if (one != NULL)
            json_array_append_new(all, one);
    }
    return all;
}

json_t *bl_attempts_first(const char *path, uint32_t attempt)
{
    for (uint32_t n = 1; n <= attempt; n++) {
        json_t *one = read_attempt(path, n);
        if (json_object_get(one, "started") != NULL)
            return one;
        json_decref(one);
    }
    return NULL;
}
