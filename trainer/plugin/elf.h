/* A shared object read as bytes: what a plugin file says about itself before any of it runs.
 *
 * Nothing is mapped and no member is trusted: every offset and size is checked against the file
 * first, so any bytes give an answer. Errors have code BL_EXIT_PLUGIN and begin with the path. */
#ifndef BL_PLUGIN_ELF_H
#define BL_PLUGIN_ELF_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct bl_elf {
    const char *path; /* for messages */
    const unsigned char *bytes;
    size_t size;
    uint64_t program_offset, program_count;
    uint64_t section_offset, section_count, section_names; /* count 0: no section headers */
    /* From PT_DYNAMIC; file offsets. */
    size_t symbols, symbol_count;
    size_t strings, string_size;
    size_t relocations, relocation_count;
    int has_init;
    uint64_t init;                                      /* address of DT_INIT */
    uint64_t init_array, init_array_offset, init_count; /* address, file offset, entries */
};

/* Checks the headers and finds the dynamic tables. The bytes must outlive e. */
int bl_elf_open(struct bl_elf *e, const char *path, const void *bytes, size_t size,
                struct bl_error *err);
/* The defined data symbol `name` in .dynsym: its bytes (at least `minimum` of them are in the
 * file) and its size. The error names another symbol of the same stem ("..._v2") if there is one.
 */
int bl_elf_symbol(const struct bl_elf *e, const char *name, size_t minimum,
                  const unsigned char **data, uint64_t *size, struct bl_error *err);
/* Whether nvcc put device code into it. Such an object registers that code by constructors. */
int bl_elf_device_code(const struct bl_elf *e);
/* Refuses code that dlopen would run, the toolchain's own excepted. The rule:
 *   - DT_INIT must be the start of section .init, which the C startup files own;
 *   - a DT_INIT_ARRAY entry that .symtab names must be one of the toolchain's (frame_dummy,
 *     __cpu_indicator_init of target_clones and __builtin_cpu_supports, coverage, and the
 *     sanitizer's when this program has the same sanitizer);
 *   - in a stripped file one entry may have no name (frame_dummy), and, on x86-64, entries that
 *     begin by executing cpuid (__cpu_indicator_init).
 * A GNU IFUNC resolver (target_clones) is made by the compiler and is let through. */
int bl_elf_constructors(const struct bl_elf *e, struct bl_error *err);

#endif
