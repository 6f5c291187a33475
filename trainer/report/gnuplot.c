#include "report/gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/document.h"

extern char **environ;

static void feed(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t w = write(fd, text, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return; /* gnuplot died early; its exit status says more than EPIPE */
        text += w;
        n -= (size_t)w;
    }
}

/* The last line with something in it of what gnuplot printed. */
static void last_line(FILE *f, char *out, size_t size)
{
    char line[256];
    out[0] = '\0';
    rewind(f);
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        const char *text = line + strspn(line, " \t^");
        if (*text != '\0')
            snprintf(out, size, "%s", text);
    }
}

static int start(int input, int output, pid_t *pid)
{
    char *argv[] = {"gnuplot", "-d", "-", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    int rc = posix_spawnp(pid, "gnuplot", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

int bl_gnuplot(const struct bl_text *script, struct bl_error *err)
{
    int fds[2], status = 0, rc;
    char words[256];
    pid_t pid;
    FILE *said = tmpfile();
    if (said == NULL || pipe2(fds, O_CLOEXEC) < 0) {
        rc = bl_error_set(err, BL_EXIT_FAILED, "gnuplot: no temporary file or pipe: %s",
                          strerror(errno));
        goto done;
    }
    int spawned = start(fds[0], fileno(said), &pid);
    close(fds[0]);
    if (spawned != 0) {
        close(fds[1]);
        rc = bl_error_set(err, BL_EXIT_FAILED,
                          "gnuplot cannot be started: %s; install the package gnuplot-nox",
                          strerror(spawned));
        goto done;
    }
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    feed(fds[1], script->text, script->length);
    close(fds[1]);
    signal(SIGPIPE, before);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    rc = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        last_line(said, words, sizeof words);
        rc = bl_error_set(err, BL_EXIT_FAILED, "gnuplot %s %d: %s",
                          WIFEXITED(status) ? "failed with status" : "was ended by signal",
                          WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
                          words[0] ? words : "it printed nothing");
    }
done:
    if (said != NULL)
        fclose(said);
    return rc;
}

void bl_gnuplot_quote(struct bl_text *t, const char *text)
{
    bl_text_add(t, "'");
    while (*text) {
        size_t n = bl_document_character(text);
        if (n == 0)
            bl_text_add(t, "\xef\xbf\xbd"); /* U+FFFD */
        else if ((unsigned char)*text < ' ' || *text == 0x7f)
            bl_text_add(t, " ");
        else
            bl_text_add(t, "%s%.*s", *text == '\'' ? "'" : "", (int)n, text);
        text += n > 0 ? n : 1;
    }
    bl_text_add(t, "'");
}

void bl_gnuplot_path(struct bl_text *t, const char *path)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-";
    bl_text_add(t, "\"");
    for (; *path; path++)
        bl_text_add(t, strchr(plain, *path) != NULL ? "%c" : "\\%03o", (unsigned char)*path);
    bl_text_add(t, "\"");
}
