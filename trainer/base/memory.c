#include "base/memory.h"

#include "base/cgroup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define CACHE_LINE ((size_t)64)
#define HUGE_PAGE  ((size_t)2 << 20)
#define HUGE_FROM  ((size_t)4 << 20)

void *bl_alloc(size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX / 2)
        return NULL;
    size_t alignment = bytes >= HUGE_FROM ? HUGE_PAGE : CACHE_LINE;
    size_t rounded = bytes ? (bytes + alignment - 1) / alignment * alignment : alignment;
    /* calloc gives large blocks untouched: an arena that is never used costs no memory. The block's
     * own start is kept in front of what the caller gets. */
    char *block = calloc(1, rounded + alignment);
    if (!block)
        return NULL;
    char *p = block + (alignment - (uintptr_t)block % alignment);
    memcpy(p - sizeof block, &block, sizeof block);
    if (alignment == HUGE_PAGE) {
        int saved = errno;
        madvise(p, rounded, MADV_HUGEPAGE); /* advice only: a kernel without it is fine */
        errno = saved;
    }
    return p;
}

void bl_free(void *pointer)
{
    int saved = errno;
    char *block = NULL;
    if (pointer)
        memcpy(&block, (char *)pointer - sizeof block, sizeof block);
    free(block);
    errno = saved;
}

/* The number after `key` in a file of "Key:   123 kB" lines, in KiB; 0 when it is not there. */
static unsigned long long read_kib(const char *path, const char *key)
{
    FILE *f = fopen(path, "re");
    unsigned long long kib = 0;
    char line[256];
    size_t n = strlen(key);
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0 && sscanf(line + n, " %llu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

uint64_t bl_memory_of_system(void)
{
    struct rlimit limit;
    uint64_t bytes = (uint64_t)read_kib("/proc/meminfo", "MemAvailable:") * 1024;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        uint64_t used = (uint64_t)read_kib("/proc/self/status", "VmSize:") * 1024;
        uint64_t left = used < limit.rlim_cur ? limit.rlim_cur - used : 0;
        if (bytes == 0 || left < bytes)
            bytes = left;
    }
    return bytes;
}

uint64_t bl_memory_of_group(void)
{
    return bl_cgroup_memory_left("/proc/self/cgroup", "/sys/fs/cgroup");
}

uint64_t bl_memory_unused(void)
{
    uint64_t bytes = bl_memory_of_system(), group = bl_memory_of_group();
    return group != UINT64_MAX && (bytes == 0 || group < bytes) ? group : bytes;
}

uint64_t bl_memory_peak(void)
{
    /* ru_maxrss survives exec, so a process started by a big one would report its parent's peak;
     * it is only the fallback. */
    unsigned long long kib = read_kib("/proc/self/status", "VmHWM:");
    struct rusage usage;
    if (kib == 0 && getrusage(RUSAGE_SELF, &usage) == 0)
        kib = (unsigned long long)usage.ru_maxrss;
    return (uint64_t)kib * 1024;
}
