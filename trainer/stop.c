#include "stop.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

/* A handler can reach nothing else. */
static volatile sig_atomic_t remembered, deferred;

const char *bl_stop_name(int number)
{
    return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "SIGUSR1";
}

int bl_stop_code(int number)
{
    return number == SIGINT ? BL_EXIT_INTERRUPTED : BL_EXIT_REQUEUE;
}

static void say(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static void end_now(int number)
{
    say("stopped by ");
    say(bl_stop_name(number));
    say(" before the first step: nothing was trained, the same command starts again\n");
    _exit(bl_stop_code(number));
}

/* Slurm may send a second SIGTERM or SIGUSR1 while the checkpoint is being written: only SIGINT,
 * which a person sends, is urgent the second time. */
static void on_signal(int number)
{
    int saved = errno;
    if (!deferred)
        end_now(number);
    if (number == SIGINT && remembered == SIGINT)
        _exit(BL_EXIT_INTERRUPTED);
    if (!remembered || number == SIGINT)
        remembered = number;
    errno = saved;
}

void bl_stop_watch(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
    struct sigaction a = {0};
    a.sa_handler = on_signal;
    a.sa_flags = SA_RESTART;
    sigemptyset(&a.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(&a.sa_mask, numbers[i]); /* one handler at a time */
    remembered = 0;
    deferred = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &a, NULL);
}

void bl_stop_defer(int on)
{
    deferred = on;
    if (!on && remembered)
        end_now(remembered);
}

int bl_stop_signal(void)
{
    return remembered;
}
