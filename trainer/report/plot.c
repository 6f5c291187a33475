#include "report/plot.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/strings.h"

extern char **environ;

/* At most this many points a line: more cannot be seen on a figure of this width. */
#define MAX_POINTS 4000
/* Up to this many points each is marked: one alone has no line. */
#define FEW_POINTS 40

/* gnuplot warns about a range of no width; a run of one step has one. */
static void add_x_range(struct bl_text *t, const struct bl_panel *p)
{
    double first = INFINITY, last = -INFINITY;
    for (size_t l = 0; l < p->count; l++) {
        const struct bl_curve *c = p->lines[l].curve;
        first = fmin(first, c->step[0]);
        last = fmax(last, c->step[c->count - 1]);
    }
    if (first == last)
        bl_text_add(t, "set xrange [%.0f:%.0f]\n", first - 1, last + 1);
    else
        bl_text_add(t, "set xrange [*:*]\n");
}

/* The same for values: a constant learning rate has one. Without any finite value, as in a run that
 * diverged at once, gnuplot would give up. */
static void add_y_range(struct bl_text *t, const struct bl_panel *p)
{
    double low = INFINITY, high = -INFINITY;
    char a[32], b[32];
    for (size_t l = 0; l < p->count; l++) {
        for (size_t i = 0; i < p->lines[l].curve->count; i++) {
            double v = p->lines[l].curve->value[i];
            low = isfinite(v) ? fmin(low, v) : low;
            high = isfinite(v) ? fmax(high, v) : high;
        }
    }
    double margin = low == 0 ? 1 : fabs(low) / 10;
    if (low > high)
        bl_text_add(t, "set yrange [1:10]\n");
    else if (low == high)
        bl_text_add(t, "set yrange [%s:%s]\n", bl_double_text(low - margin, a),
                    bl_double_text(high + margin, b));
    else
        bl_text_add(t, "set yrange [*:*]\n");
}

static int all_positive(const struct bl_panel *p)
{
    for (size_t l = 0; l < p->count; l++) {
        for (size_t i = 0; i < p->lines[l].curve->count; i++) {
            double v = p->lines[l].curve->value[i];
            if (isfinite(v) && v <= 0)
                return 0;
        }
    }
    return 1;
}

static void add_data(struct bl_text *t, size_t panel, size_t line, const struct bl_curve *c)
{
    size_t stride = c->count / MAX_POINTS + 1;
    bl_text_add(t, "$d%zu_%zu << EOD\n", panel, line);
    int any = 0;
    for (size_t i = 0; i < c->count; i += stride) {
        char a[32], b[32];
        if (isfinite(c->value[i])) {
            bl_text_add(t, "%s %s\n", bl_double_text(c->step[i], a),
                        bl_double_text(c->value[i], b));
            any = 1;
        } else {
            bl_text_add(t, "\n"); /* a gap, not a line drawn across it */
        }
    }
    if (!any)
        bl_text_add(t, "%.0f NaN\n%.0f NaN\n", c->step[0], c->step[c->count - 1]);
    bl_text_add(t, "EOD\n");
}

/* Colours of Okabe and Ito, distinguishable with every common colour blindness. */
static const char *const colours[4] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7"};

static void add_panel(struct bl_text *t, const struct bl_panel *p, size_t index)
{
    for (size_t l = 0; l < p->count; l++)
        add_data(t, index, l, p->lines[l].curve);
    bl_text_add(t, "set title \"%s\" offset 0,-0.4\nset ylabel \"%s\"\n", p->title, p->y_label);
    add_x_range(t, p);
    add_y_range(t, p);
    bl_text_add(t, p->log_y && all_positive(p) ? "set logscale y\n" : "unset logscale y\n");
    bl_text_add(t, p->count > 1 ? "set key top right opaque\n" : "unset key\n");
    bl_text_add(t, "plot ");
    for (size_t l = 0; l < p->count; l++)
        bl_text_add(t, "%s$d%zu_%zu using 1:2 with %s lw 2 dt %zu lc rgb \"%s\" title \"%s\"",
                    l ? ", " : "", index, l,
                    p->lines[l].curve->count <= FEW_POINTS ? "linespoints pt 7 ps 0.8" : "lines",
                    l + 1, colours[l], p->lines[l].label);
    bl_text_add(t, "\n");
}

static int feed(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t w = write(fd, text, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return -1;
        text += w;
        n -= (size_t)w;
    }
    return 0;
}

static int run_gnuplot(const char *script, size_t n, struct bl_error *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return bl_error_set(err, BL_EXIT_FAILED, "gnuplot: pipe: %s", strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[0], 0);
    char *argv[] = {"gnuplot", "-", NULL};
    pid_t pid;
    int rc = posix_spawnp(&pid, "gnuplot", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[0]);
    if (rc != 0) {
        close(fds[1]);
        return bl_error_set(err, BL_EXIT_FAILED,
                            "gnuplot cannot be started: %s; install the package gnuplot-nox",
                            strerror(rc));
    }
    /* gnuplot may die early; its exit status then says more than EPIPE. */
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    (void)feed(fds[1], script, n);
    close(fds[1]);
    signal(SIGPIPE, before);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return bl_error_set(err, BL_EXIT_FAILED,
                            "gnuplot failed with status %d (its words are above)",
                            WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    return 0;
}

/* In gnuplot's single quotes only a quote itself is special; two stand for one. */
static void add_quoted(struct bl_text *t, const char *text)
{
    bl_text_add(t, "'");
    for (; *text; text++)
        bl_text_add(t, "%s%c", *text == '\'' ? "'" : "", *text);
    bl_text_add(t, "'");
}

int bl_plot(const char *path, const struct bl_panel *panels, size_t count, struct bl_error *err)
{
    char *tmp = bl_format("%s.tmp", path);
    struct bl_text t = {0};
    if (tmp == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: out of memory", path);
    bl_text_add(&t,
                "set terminal pngcairo size 1000,%zu font 'sans,11' background '#ffffff'\n"
                "set output ",
                60 + 300 * count);
    add_quoted(&t, tmp);
    bl_text_add(&t, "\nset lmargin 11\nset rmargin 3\nset grid lc rgb '#dddddd' lt 1\n"
                    "set border 3\nset tics nomirror\nset xlabel 'step' offset 0,0.5\n"
                    "set format y '%%g'\n");
    bl_text_add(&t, "set multiplot layout %zu,1\n", count);
    for (size_t i = 0; i < count; i++)
        add_panel(&t, &panels[i], i);
    bl_text_add(&t, "unset multiplot\nunset output\n");
    int rc = t.failed ? bl_error_set(err, BL_EXIT_FAILED, "%s: out of memory", path)
                      : run_gnuplot(t.text, t.length, err);
    if (rc == 0 && rename(tmp, path) < 0)
        rc = bl_error_set(err, BL_EXIT_FAILED, "%s: %s", path, strerror(errno));
    if (rc < 0)
        unlink(tmp);
    bl_text_free(&t);
    free(tmp);
    return rc;
}
