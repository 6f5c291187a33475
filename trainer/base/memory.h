/* Host memory: 64-byte aligned, zeroed, counted. */
#ifndef BL_BASE_MEMORY_H
#define BL_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* n * size bytes, zeroed, 64-byte aligned (huge pages advised from 4 MiB on); a large block takes
 * memory only where it is touched. NULL on overflow or when there is no memory. */
void *bl_alloc(size_t n, size_t size);
void bl_free(void *pointer);   /* NULL is fine; keeps errno */
uint64_t bl_memory_peak(void); /* bytes, of the process (VmHWM) */
/* Bytes that the process may still take: the least of what the system calls available, what is
 * left of its limit on address space, and of its control group's on memory. 0 when neither can be
 * told. */
uint64_t bl_memory_unused(void);
/* The same in two parts: without the control group, and of that alone (UINT64_MAX: no limit). */
uint64_t bl_memory_of_system(void);
uint64_t bl_memory_of_group(void);

#endif
