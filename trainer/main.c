/* argv -> command. The only file that prints errors or ends the process. */
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "cmd.h"
#include "config/config.h"
#include "job.h"

static const struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv, struct bl_error *err);
} commands[] = {
    {"train", "train what a config file says; KEY=VALUE overrides follow it", bl_cmd_train},
    {"check", "load everything, train nothing, print what would run", bl_cmd_check},
    {"doctor", "find what would stop or slow down a run here, and the fix", bl_cmd_doctor},
    {"plugins", "list plugins, or print the options of one", bl_cmd_plugins},
    {"plugin", "for authors of plugins: start a new one, check one that is built", bl_cmd_plugin},
    {"report", "draw the curves of runs: PNG figures and one HTML page", bl_cmd_report},
    {"reduce", "add up made-up gradients of many ranks and see what is lost", bl_cmd_reduce},
    {"data", "make token shards from text", bl_cmd_data},
    {"weights", "list the tensors of a checkpoint, or compare two", bl_cmd_weights},
};

static void usage(FILE *out)
{
    fprintf(out, "usage: ballast COMMAND [ARGUMENT...]\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
    fprintf(
        out,
        "\n`ballast COMMAND --help` says more; `ballast help GROUP` prints the keys of a group\n"
        "of the configuration, `ballast help config` all of them.\n\n"
        "Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 plugin refused, 4 data\n"
        "refused, 5 checkpoint refused, 6 another process of the job was lost, 7 diverged or\n"
        "stopped by an alarm, 75 stopped early with a checkpoint, 130 interrupted with one.\n");
}

static int run_command(int argc, char **argv, struct bl_error *err)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(argv[0], commands[i].name) == 0)
            return commands[i].run(argc, argv, err);
    }
    return bl_error_set(err, BL_EXIT_USAGE, "no command \"%s\"; `ballast --help` lists them",
                        argv[0]);
}

/* `ballast help [COMMAND | GROUP]` */
static int help(int argc, char **argv, struct bl_error *err)
{
    char option[] = "--help";
    if (argc < 2)
        return usage(stdout), 0;
    if (argc > 2)
        return bl_error_set(err, BL_EXIT_USAGE, "usage: ballast help [COMMAND | GROUP]");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            char *words[] = {argv[1], option, NULL};
            return commands[i].run(2, words, err);
        }
    }
    if (bl_config_help(argv[1], stdout) == 0)
        return 0;
    return bl_error_set(err, BL_EXIT_USAGE,
                        "no command and no group of the configuration is called \"%s\"; `ballast "
                        "--help` lists the commands, `ballast help config` prints the groups",
                        argv[1]);
}

/* A file that is opened while descriptor 1 or 2 is closed would get that number, and with it what
 * is printed. Read-only, so that printing still fails as on a closed descriptor. */
static void hold_standard_descriptors(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* The end of every command: what was printed has to have arrived. */
static int finish(int rc, struct bl_error *err)
{
    bl_log_progress("");
    if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout)))
        rc = bl_error_set(err, BL_EXIT_FAILED, "standard output cannot be written");
    if (rc == 0) {
        bl_job_status(BL_EXIT_DONE, "done");
        return BL_EXIT_DONE;
    }
    int code = err->code > 0 ? err->code : BL_EXIT_FAILED;
    int stopped = code == BL_EXIT_REQUEUE || code == BL_EXIT_INTERRUPTED;
    if (err->text[0] != '\0') /* else another process of the job says it */
        bl_log(stopped ? BL_LOG_INFO : BL_LOG_ERROR, "%s", err->text);
    bl_job_status(code, err->text);
    return code;
}

/* OpenBLAS starts a thread for each processor when it is loaded, before main. None is ever used
 * (the pool makes all calls); each takes 128 MiB of address space, and where a limit leaves no room
 * they spin for ever, even at the end of the process. Only the environment can tell it not to, and
 * only before it is loaded: under such a limit the program starts itself once more. Where that
 * fails it goes on. */
static void start_without_blas_threads(char **argv)
{
    static const char name[] = "OPENBLAS_NUM_THREADS";
    const char *now = getenv(name);
    struct rlimit space;
    char path[4096];
    if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY ||
        (now != NULL && strcmp(now, "1") == 0))
        return;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0 || setenv(name, "1", 1) != 0)
        return;
    path[n] = '\0';
    execv(path, argv);
}

int main(int argc, char **argv)
{
    struct bl_error err = BL_ERROR_INIT;
    start_without_blas_threads(argv);
    hold_standard_descriptors();
    setlocale(LC_ALL, "C");
    signal(SIGPIPE, SIG_IGN); /* a closed terminal or pipe is an error of one sink, not the end */
    signal(SIGXFSZ, SIG_IGN); /* so is a limit on file sizes: writing then fails with its reason */
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0))
        return finish(help(argc - 1, argv + 1, &err), &err);
    if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
        printf("ballast %s (plugin ABI %d.%d)\n", BL_VERSION, BL_ABI_MAJOR, BL_ABI_MINOR);
        return finish(0, &err);
    }
    if (argc < 2) {
        usage(stderr);
        return BL_EXIT_USAGE;
    }
    return finish(run_command(argc - 1, argv + 1, &err), &err);
}
