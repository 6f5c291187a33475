/* Finds, loads and checks the transport module. */
#include "collectives/world_internal.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/strings.h"

#define MODULE "transport_ucx.so"

/* The library behind it reads its settings when it is loaded. What the user sets wins. */
static const char *const settings[][2] = {
    {"UCX_LOG_LEVEL", "fatal"}, /* what matters comes back as an error of ours */
    {"UCX_HANDLE_ERRORS", "none"},     {"UCX_ERROR_SIGNALS", ""},
    {"UCX_VFS_ENABLE", "n"}, /* a thread of its own */
    {"UCX_WARN_UNUSED_ENV_VARS", "n"},
};

/* The folder of this program, "" when it cannot be told. */
static void program_folder(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(out, '/');
    *(slash != NULL ? slash : out) = '\0';
}

/* 1 loaded, 0 no such file, -1. */
static int load_from(struct bl_world *w, const char *folder, int folder_bytes, const char *below,
                     struct bl_error *err)
{
    int rc = 1;
    char *path = bl_format("%.*s%s/" MODULE, folder_bytes, folder, below);
    if (path == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, MODULE ": no memory");
    if (access(path, F_OK) != 0) {
        rc = 0;
        goto out;
    }
    /* Never unloaded: the library has threads' keys and memory hooks that would be left behind. */
    w->module = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (w->module == NULL) {
        rc = bl_error_set(err, BL_EXIT_FAILED,
                          "several processes need UCX, which cannot be loaded (%s); install it "
                          "(Debian: libucx0)",
                          dlerror());
        goto out;
    }
    const struct bl_transport_ops *ops = dlsym(w->module, BL_TRANSPORT_SYMBOL);
    if (ops == NULL || ops->size != sizeof *ops || ops->version != BL_TRANSPORT_VERSION)
        rc = bl_error_set(err, BL_EXIT_FAILED,
                          "%s: not the transport of this version of ballast; install both anew",
                          path);
    else
        w->ops = ops;
out:
    free(path);
    return rc;
}

int bl_world_load(struct bl_world *w, struct bl_error *err)
{
    char program[4096];
    const char *list = getenv("BALLAST_PLUGIN_PATH");
    int rc = 0;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        setenv(settings[i][0], settings[i][1], 0);
    while (rc == 0 && list != NULL && *list != '\0') {
        size_t n = strcspn(list, ":");
        if (n > 0)
            rc = load_from(w, list, (int)n, "", err);
        list += n + (list[n] == ':');
    }
    program_folder(program, sizeof program);
    if (rc == 0)
        rc = load_from(w, program, (int)strlen(program), "/../plugins/.libs", err);
    if (rc == 0)
        rc = load_from(w, BL_PKGLIBDIR, (int)strlen(BL_PKGLIBDIR), "", err);
    if (rc == 0)
        bl_error_set(err, BL_EXIT_FAILED,
                     "several processes need the module " MODULE ", which is not in " BL_PKGLIBDIR
                     "; build ballast with UCX (Debian: libucx-dev)");
    return rc == 1 ? 0 : -1;
}
