/* A ring all-reduce of fp32 (reduce-scatter, then all-gather, additions included) over bl_world and
 * over plain sockets:
 *
 *     collectives world|socket PROCESSES
 *
 * forks that many processes; the first one prints a line a size, see ring.h. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/world.h"
#include "ring.h"

struct line {
    struct bl_world *world; /* NULL: sockets */
    int next, previous;
    uint32_t process, processes;
};

static int exchange(struct line *l, const void *out, size_t out_bytes, void *in, size_t in_bytes)
{
    if (l->world != NULL) {
        struct bl_error err = BL_ERROR_INIT;
        struct bl_message *m[2] = {NULL, NULL};
        uint32_t n = l->processes, p = l->process;
        if (bl_world_receive(l->world, (p + n - 1) % n, 0, in, in_bytes, &m[0], &err) != 0 ||
            bl_world_send(l->world, (p + 1) % n, 0, out, out_bytes, &m[1], &err) != 0 ||
            bl_world_wait(l->world, m, 2, &err) != 0) {
            fprintf(stderr, "%s\n", err.text);
            return -1;
        }
        return 0;
    }
    size_t sent = 0, got = 0;
    while (sent < out_bytes || got < in_bytes) {
        struct pollfd fds[2] = {{.fd = sent < out_bytes ? l->next : -1, .events = POLLOUT},
                                {.fd = got < in_bytes ? l->previous : -1, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0)
            return -1;
        ssize_t n = 0;
        if (fds[0].revents != 0) {
            n = send(l->next, (const char *)out + sent, out_bytes - sent, MSG_NOSIGNAL);
            if (n < 0 && errno != EAGAIN)
                return -1;
            sent += n > 0 ? (size_t)n : 0;
        }
        if (fds[1].revents != 0) {
            n = recv(l->previous, (char *)in + got, in_bytes - got, 0);
            if (n == 0 || (n < 0 && errno != EAGAIN))
                return -1;
            got += n > 0 ? (size_t)n : 0;
        }
    }
    return 0;
}

static int all_reduce(struct line *l, float *x, float *space, size_t n)
{
    uint32_t count = l->processes, p = l->process;
    for (uint32_t hop = 0; hop + 1 < 2 * count - 1; hop++) {
        int adds = hop + 1 < count;
        size_t out = (p + 2 * count - hop) % count, in = (p + 2 * count - hop - 1) % count;
        size_t a = out * n / count, a1 = (out + 1) * n / count;
        size_t b = in * n / count, b1 = (in + 1) * n / count;
        if (exchange(l, x + a, (a1 - a) * sizeof *x, adds ? space : x + b, (b1 - b) * sizeof *x) !=
            0)
            return -1;
        for (size_t i = b; adds && i < b1; i++)
            x[i] += space[i - b];
    }
    return 0;
}

static int measure(struct line *l)
{
    size_t most = bench_bytes[BENCH_SIZES - 1];
    float *x = malloc(most), *space = malloc(most);
    double seconds[BENCH_MOST];
    int rc = x != NULL && space != NULL ? 0 : -1;
    for (size_t s = 0; s < BENCH_SIZES && rc == 0; s++) {
        size_t n = bench_bytes[s] / sizeof *x;
        int repeats = bench_repeats(bench_bytes[s]);
        for (size_t i = 0; i < n; i++)
            x[i] = 1.0f;
        rc = all_reduce(l, x, space, n);
        for (size_t i = 0; i < n && rc == 0; i++)
            if (x[i] != (float)l->processes) {
                fprintf(stderr, "element %zu is %g\n", i, (double)x[i]);
                rc = -1;
            }
        for (size_t i = 0; i < n; i++)
            x[i] = 0.0f;
        uint64_t wire = bench_wire();
        for (int r = 0; r < repeats && rc == 0; r++) {
            double begin = bench_clock();
            rc = all_reduce(l, x, space, n);
            seconds[r] = bench_clock() - begin;
        }
        if (rc == 0 && l->process == 0)
            bench_line(l->world != NULL ? "world" : "socket", l->processes, bench_bytes[s], seconds,
                       repeats, bench_wire() - wire);
    }
    free(x);
    free(space);
    return rc;
}

static int run_world(uint32_t process, uint32_t processes, const char *folder)
{
    char number[16], count[16];
    struct bl_error err = BL_ERROR_INIT;
    struct line l = {.process = process, .processes = processes};
    snprintf(number, sizeof number, "%u", process);
    snprintf(count, sizeof count, "%u", processes);
    setenv("BALLAST_PROCESS", number, 1);
    setenv("BALLAST_PROCESSES", count, 1);
    setenv("BALLAST_MEET", folder, 1);
    if (bl_world_make(60, &l.world, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    int rc = measure(&l);
    bl_world_free(l.world);
    return rc;
}

static int tune(int fd)
{
    int one = 1;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0 &&
                   fcntl(fd, F_SETFL, O_NONBLOCK) == 0
               ? 0
               : -1;
}

static int run_sockets(uint32_t process, uint32_t processes, const int *listeners)
{
    struct line l = {.process = process, .processes = processes};
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    l.next = socket(AF_INET, SOCK_STREAM, 0);
    if (l.next < 0 ||
        getsockname(listeners[(process + 1) % processes], (struct sockaddr *)&address, &size) !=
            0 ||
        connect(l.next, (struct sockaddr *)&address, size) != 0)
        return -1;
    l.previous = accept(listeners[process], NULL, NULL);
    if (l.previous < 0 || tune(l.next) != 0 || tune(l.previous) != 0)
        return -1;
    return measure(&l);
}

int main(int argc, char **argv)
{
    int processes = argc == 3 ? atoi(argv[2]) : 0, rc = 0;
    int listeners[64];
    char folder[] = "/tmp/ballast-bench-XXXXXX";
    if (processes < 2 || processes > 64) {
        fprintf(stderr, "usage: collectives world|socket PROCESSES\n");
        return 2;
    }
    int world = strcmp(argv[1], "world") == 0;
    if (world && mkdtemp(folder) == NULL)
        return 1;
    for (int p = 0; p < processes && !world; p++) {
        struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        listeners[p] = socket(AF_INET, SOCK_STREAM, 0);
        if (listeners[p] < 0 || bind(listeners[p], (struct sockaddr *)&any, sizeof any) != 0 ||
            listen(listeners[p], 4) != 0) {
            perror("socket");
            return 1;
        }
    }
    for (int p = 0; p < processes; p++)
        if (fork() == 0) {
            rc = world ? run_world((uint32_t)p, (uint32_t)processes, folder)
                       : run_sockets((uint32_t)p, (uint32_t)processes, listeners);
            _exit(rc != 0);
        }
    for (int p = 0; p < processes; p++) {
        int status;
        if (wait(&status) < 0 || status != 0)
            rc = 1;
    }
    if (world) {
        char command[64];
        snprintf(command, sizeof command, "rm -rf %s", folder);
        rc |= system(command) != 0;
    }
    return rc;
}
