#include "plugin/elf.h"

#include <elf.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "plugins are little-endian ELF files"
#endif

#if defined(__x86_64__)
#define MACHINE        EM_X86_64
#define MACHINE_NAME   "x86-64"
#define RELOC_RELATIVE R_X86_64_RELATIVE
#define RELOC_ABSOLUTE R_X86_64_64
#elif defined(__aarch64__)
#define MACHINE        EM_AARCH64
#define MACHINE_NAME   "aarch64"
#define RELOC_RELATIVE R_AARCH64_RELATIVE
#define RELOC_ABSOLUTE R_AARCH64_ABS64
#else
#error "add this machine to trainer/plugin/elf.c"
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

enum { MAX_PROGRAM_HEADERS = 256, MAX_CONSTRUCTORS = 256, CODE_PREFIX = 64 };

static int refuse(const struct bl_elf *e, struct bl_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(const struct bl_elf *e, struct bl_error *err, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return bl_error_set(err, BL_EXIT_PLUGIN, "%s: refused: %s", e->path, text);
}

/* Whether [offset, offset + length) lies in the file. */
static int inside(const struct bl_elf *e, uint64_t offset, uint64_t length)
{
    return offset <= e->size && length <= e->size - offset;
}

static void load(const struct bl_elf *e, uint64_t offset, void *out, size_t n)
{
    memcpy(out, e->bytes + offset, n);
}

static Elf64_Phdr program(const struct bl_elf *e, uint64_t i)
{
    Elf64_Phdr p;
    load(e, e->program_offset + i * sizeof p, &p, sizeof p);
    return p;
}

static Elf64_Shdr section(const struct bl_elf *e, uint64_t i)
{
    Elf64_Shdr s;
    load(e, e->section_offset + i * sizeof s, &s, sizeof s);
    return s;
}

static Elf64_Sym symbol(const struct bl_elf *e, uint64_t table, uint64_t i)
{
    Elf64_Sym s;
    load(e, table + i * sizeof s, &s, sizeof s);
    return s;
}

/* File offset of `length` bytes at an address, and how many file bytes follow there in all. */
static int locate(const struct bl_elf *e, uint64_t address, uint64_t length, uint64_t *offset,
                  uint64_t *available)
{
    for (uint64_t i = 0; i < e->program_count; i++) {
        Elf64_Phdr p = program(e, i);
        if (p.p_type != PT_LOAD || address < p.p_vaddr || address - p.p_vaddr > p.p_filesz)
            continue;
        uint64_t skip = address - p.p_vaddr;
        if (length > p.p_filesz - skip)
            continue;
        *offset = p.p_offset + skip;
        if (available != NULL)
            *available = p.p_filesz - skip;
        return 0;
    }
    return -1;
}

static int check_header(struct bl_elf *e, struct bl_error *err)
{
    Elf64_Ehdr h;
    if (e->size < sizeof h)
        return refuse(e, err, "%zu bytes are too few for an ELF file", e->size);
    load(e, 0, &h, sizeof h);
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0)
        return refuse(e, err, "not an ELF file; a plugin is a shared object (.so)");
    if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB)
        return refuse(e, err, "ELF class %d, byte order %d; expected 64-bit little-endian (2, 1)",
                      h.e_ident[EI_CLASS], h.e_ident[EI_DATA]);
    if (h.e_ident[EI_VERSION] != EV_CURRENT || h.e_version != EV_CURRENT)
        return refuse(e, err, "ELF version %u, expected 1", (unsigned)h.e_version);
    if (h.e_machine != MACHINE)
        return refuse(e, err, "built for ELF machine %u, this program is for %s (%d)", h.e_machine,
                      MACHINE_NAME, MACHINE);
    if (h.e_type != ET_DYN)
        return refuse(e, err, "ELF type %u, expected a shared object (3); link with -shared",
                      h.e_type);
    if (h.e_phentsize != sizeof(Elf64_Phdr) || h.e_phnum == 0 || h.e_phnum > MAX_PROGRAM_HEADERS ||
        !inside(e, h.e_phoff, (uint64_t)h.e_phnum * sizeof(Elf64_Phdr)))
        return refuse(e, err, "program headers (%u at %" PRIu64 ") do not fit in %zu bytes; cut?",
                      h.e_phnum, h.e_phoff, e->size);
    e->program_offset = h.e_phoff;
    e->program_count = h.e_phnum;
    if (h.e_shoff == 0)
        return 0;
    if (h.e_shentsize != sizeof(Elf64_Shdr) ||
        !inside(e, h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr)))
        return refuse(e, err,
                      "section headers (%u at %" PRIu64 ") end past %zu bytes; the file "
                      "is cut or damaged: build or copy it again",
                      h.e_shnum, h.e_shoff, e->size);
    e->section_offset = h.e_shoff;
    e->section_count = h.e_shnum;
    e->section_names = h.e_shstrndx;
    return 0;
}

/* The kernel and the dynamic linker map PT_LOADs without looking at the file's size: a read past
 * the end of a cut file would be a SIGBUS inside dlopen. */
static int check_segments(struct bl_elf *e, uint64_t *dynamic, uint64_t *dynamic_size,
                          struct bl_error *err)
{
    uint64_t end = 0;
    int loads = 0, dynamics = 0;
    for (uint64_t i = 0; i < e->program_count; i++) {
        Elf64_Phdr p = program(e, i);
        if (p.p_type == PT_DYNAMIC) {
            dynamics++;
            *dynamic = p.p_vaddr;
            *dynamic_size = p.p_filesz;
        }
        if (p.p_type == PT_LOAD || p.p_type == PT_DYNAMIC || p.p_type == PT_TLS) {
            if (!inside(e, p.p_offset, p.p_filesz))
                return refuse(e, err,
                              "segment %" PRIu64 " ends at byte %" PRIu64 "+%" PRIu64
                              " of a file of %zu; the file is cut: build or copy it again",
                              i, p.p_offset, p.p_filesz, e->size);
            if (p.p_filesz > p.p_memsz || p.p_vaddr > UINT64_MAX - p.p_memsz)
                return refuse(e, err, "segment %" PRIu64 " has impossible sizes", i);
        }
        if (p.p_type != PT_LOAD)
            continue;
        if ((p.p_align & (p.p_align - 1)) != 0 ||
            (p.p_align > 1 && ((p.p_vaddr - p.p_offset) & (p.p_align - 1)) != 0))
            return refuse(e, err, "segment %" PRIu64 " has an impossible alignment", i);
        if (loads > 0 && p.p_vaddr < end)
            return refuse(e, err, "segment %" PRIu64 " overlaps the one before it", i);
        end = p.p_vaddr + p.p_memsz;
        loads++;
    }
    if (loads == 0 || dynamics != 1)
        return refuse(e, err, "%d loadable and %d dynamic segments; not a shared object", loads,
                      dynamics);
    return 0;
}

/* The number of symbols is only in the hash tables. Returns -1 when they are malformed. */
static int count_by_hash(const struct bl_elf *e, uint64_t address, size_t *count)
{
    uint32_t h[2];
    uint64_t at;
    if (locate(e, address, sizeof h, &at, NULL) != 0)
        return -1;
    load(e, at, h, sizeof h);
    *count = h[1]; /* nbucket, nchain */
    return 0;
}

static int count_by_gnu_hash(const struct bl_elf *e, uint64_t address, size_t *count)
{
    uint32_t h[4]; /* buckets, first symbol, bloom words (64 bits each), shift */
    uint64_t at, room, last = 0;
    if (locate(e, address, sizeof h, &at, &room) != 0)
        return -1;
    load(e, at, h, sizeof h);
    uint64_t chains = sizeof h + (uint64_t)h[2] * 8 + (uint64_t)h[0] * 4;
    if (chains > room)
        return -1;
    for (uint32_t i = 0; i < h[0]; i++) {
        uint32_t bucket;
        load(e, at + sizeof h + (uint64_t)h[2] * 8 + (uint64_t)i * 4, &bucket, sizeof bucket);
        if (bucket > last)
            last = bucket;
    }
    if (last == 0) { /* nothing is exported; the symbols before the first hashed one remain */
        *count = h[1];
        return 0;
    }
    if (last < h[1])
        return -1;
    for (;; last++) { /* the last chain ends at an odd word */
        uint32_t word;
        uint64_t skip = chains + (last - h[1]) * 4;
        if (skip > room || room - skip < sizeof word)
            return -1;
        load(e, at + skip, &word, sizeof word);
        if (word & 1)
            break;
    }
    *count = (size_t)last + 1;
    return 0;
}

struct dynamic {
    uint64_t value[64];
    unsigned char present[64];
    uint64_t gnu_hash;
    int has_gnu_hash;
};

static int read_dynamic(const struct bl_elf *e, uint64_t address, uint64_t size,
                        struct dynamic *out, struct bl_error *err)
{
    uint64_t at;
    memset(out, 0, sizeof *out);
    if (locate(e, address, size, &at, NULL) != 0)
        return refuse(e, err, "the dynamic segment is not inside a loaded one");
    for (uint64_t i = 0; i < size / sizeof(Elf64_Dyn); i++) {
        Elf64_Dyn d;
        load(e, at + i * sizeof d, &d, sizeof d);
        if (d.d_tag == DT_NULL)
            return 0;
        if (d.d_tag == DT_GNU_HASH) {
            out->gnu_hash = d.d_un.d_ptr;
            out->has_gnu_hash = 1;
        } else if (d.d_tag > 0 && d.d_tag < 64) {
            out->value[d.d_tag] = d.d_un.d_val;
            out->present[d.d_tag] = 1;
        }
    }
    return refuse(e, err, "the dynamic segment has no end mark");
}

int bl_elf_open(struct bl_elf *e, const char *path, const void *bytes, size_t size,
                struct bl_error *err)
{
    struct dynamic d;
    uint64_t dynamic = 0, dynamic_size = 0, offset, room;

    *e = (struct bl_elf){.path = path, .bytes = bytes, .size = size};
    if (check_header(e, err) != 0 || check_segments(e, &dynamic, &dynamic_size, err) != 0 ||
        read_dynamic(e, dynamic, dynamic_size, &d, err) != 0)
        return -1;

    if (!d.present[DT_STRTAB] || !d.present[DT_STRSZ] || !d.present[DT_SYMTAB] ||
        (d.present[DT_SYMENT] && d.value[DT_SYMENT] != sizeof(Elf64_Sym)))
        return refuse(e, err, "no dynamic symbol table");
    e->string_size = d.value[DT_STRSZ];
    if (e->string_size == 0 || locate(e, d.value[DT_STRTAB], e->string_size, &offset, NULL) != 0 ||
        e->bytes[offset + e->string_size - 1] != '\0')
        return refuse(e, err, "the dynamic string table is damaged");
    e->strings = offset;
    if (d.present[DT_HASH] ? count_by_hash(e, d.value[DT_HASH], &e->symbol_count)
        : d.has_gnu_hash   ? count_by_gnu_hash(e, d.gnu_hash, &e->symbol_count)
                           : -1)
        return refuse(e, err, "the symbol hash table is missing or damaged");
    if (locate(e, d.value[DT_SYMTAB], 0, &offset, &room) != 0 ||
        e->symbol_count > room / sizeof(Elf64_Sym))
        return refuse(e, err, "the dynamic symbol table is damaged");
    e->symbols = offset;

    if (d.present[DT_RELA]) {
        uint64_t bytes_of = d.value[DT_RELASZ];
        if ((d.present[DT_RELAENT] && d.value[DT_RELAENT] != sizeof(Elf64_Rela)) ||
            locate(e, d.value[DT_RELA], bytes_of, &offset, NULL) != 0)
            return refuse(e, err, "the relocation table is damaged");
        e->relocations = offset;
        e->relocation_count = bytes_of / sizeof(Elf64_Rela);
    }
    e->has_init = d.present[DT_INIT];
    e->init = d.value[DT_INIT];
    if (d.present[DT_INIT_ARRAY] && d.value[DT_INIT_ARRAYSZ] != 0) {
        uint64_t bytes_of = d.value[DT_INIT_ARRAYSZ];
        if (bytes_of % 8 != 0 || locate(e, d.value[DT_INIT_ARRAY], bytes_of, &offset, NULL) != 0)
            return refuse(e, err, "the constructor table is damaged");
        e->init_array = d.value[DT_INIT_ARRAY];
        e->init_array_offset = offset;
        e->init_count = bytes_of / 8;
    }
    return 0;
}

/* ---- symbols ---------------------------------------------------------------------------------*/

static const char *dynamic_name(const struct bl_elf *e, const Elf64_Sym *s)
{
    return s->st_name < e->string_size ? (const char *)e->bytes + e->strings + s->st_name : "";
}

static int exported(const Elf64_Sym *s)
{
    unsigned bind = ELF64_ST_BIND(s->st_info), visible = ELF64_ST_VISIBILITY(s->st_other);
    return s->st_shndx != SHN_UNDEF && (bind == STB_GLOBAL || bind == STB_WEAK) &&
           (visible == STV_DEFAULT || visible == STV_PROTECTED);
}

int bl_elf_symbol(const struct bl_elf *e, const char *name, size_t minimum,
                  const unsigned char **data, uint64_t *size, struct bl_error *err)
{
    size_t stem = strcspn(name, "0123456789");
    const char *other = NULL;
    for (size_t i = 0; i < e->symbol_count; i++) {
        Elf64_Sym s = symbol(e, e->symbols, i);
        const char *found = dynamic_name(e, &s);
        uint64_t offset;
        if (!exported(&s))
            continue;
        if (strcmp(found, name) != 0) {
            if (strncmp(found, name, stem) == 0)
                other = found;
            continue;
        }
        if (ELF64_ST_TYPE(s.st_info) != STT_OBJECT || s.st_shndx == SHN_ABS)
            return refuse(e, err, "%s is not a data object; use the BL_PLUGIN macro", name);
        if (s.st_size < minimum || locate(e, s.st_value, minimum, &offset, NULL) != 0)
            return refuse(e, err, "%s has %" PRIu64 " bytes, expected at least %zu in the file",
                          name, s.st_size, minimum);
        *data = e->bytes + offset;
        *size = s.st_size;
        return 0;
    }
    if (other != NULL)
        return refuse(e, err,
                      "it exports %.100s but not %s: built for another major version of "
                      "the plugin ABI; rebuild it with this program's headers",
                      other, name);
    return refuse(e, err, "it does not export %s; a plugin ends with the BL_PLUGIN macro", name);
}

/* The section of this name, or of this type when name is NULL; -1 when there is none. */
static int find_section(const struct bl_elf *e, const char *name, uint32_t type, Elf64_Shdr *out)
{
    Elf64_Shdr names = {0};
    if (name != NULL) {
        if (e->section_names >= e->section_count)
            return -1;
        names = section(e, e->section_names);
        if (names.sh_type != SHT_STRTAB || !inside(e, names.sh_offset, names.sh_size))
            return -1;
    }
    for (uint64_t i = 0; i < e->section_count; i++) {
        Elf64_Shdr s = section(e, i);
        if (name == NULL) {
            if (s.sh_type != type)
                continue;
        } else {
            size_t n = strlen(name) + 1;
            if (s.sh_name > names.sh_size || names.sh_size - s.sh_name < n ||
                memcmp(e->bytes + names.sh_offset + s.sh_name, name, n) != 0)
                continue;
        }
        *out = s;
        return 0;
    }
    return -1;
}

int bl_elf_device_code(const struct bl_elf *e)
{
    Elf64_Shdr s;
    return find_section(e, ".nv_fatbin", 0, &s) == 0;
}

/* The name that .symtab gives the function at an address; NULL when it has none (stripped). */
static const char *function_name(const struct bl_elf *e, uint64_t address)
{
    Elf64_Shdr table, names;
    if (find_section(e, NULL, SHT_SYMTAB, &table) != 0 || table.sh_link >= e->section_count ||
        !inside(e, table.sh_offset, table.sh_size))
        return NULL;
    names = section(e, table.sh_link);
    if (!inside(e, names.sh_offset, names.sh_size) || names.sh_size == 0 ||
        e->bytes[names.sh_offset + names.sh_size - 1] != '\0')
        return NULL;
    for (uint64_t i = 0; i < table.sh_size / sizeof(Elf64_Sym); i++) {
        Elf64_Sym s = symbol(e, table.sh_offset, i);
        if (s.st_value == address && s.st_shndx != SHN_UNDEF &&
            ELF64_ST_TYPE(s.st_info) == STT_FUNC && s.st_name < names.sh_size &&
            e->bytes[names.sh_offset + s.st_name] != '\0')
            return (const char *)e->bytes + names.sh_offset + s.st_name;
    }
    return NULL;
}

/* ---- constructors ----------------------------------------------------------------------------*/

/* What the slot will hold: a relocation's value, or, without one, the bytes in place (DT_RELR). */
static uint64_t slot_target(const struct bl_elf *e, uint64_t i)
{
    uint64_t address = e->init_array + i * 8, value;
    for (size_t k = 0; k < e->relocation_count; k++) {
        Elf64_Rela r;
        load(e, e->relocations + k * sizeof r, &r, sizeof r);
        if (r.r_offset != address)
            continue;
        if (ELF64_R_TYPE(r.r_info) == RELOC_RELATIVE)
            return (uint64_t)r.r_addend;
        if (ELF64_R_TYPE(r.r_info) == RELOC_ABSOLUTE && ELF64_R_SYM(r.r_info) < e->symbol_count) {
            Elf64_Sym s = symbol(e, e->symbols, ELF64_R_SYM(r.r_info));
            return s.st_shndx == SHN_UNDEF ? 0 : s.st_value + (uint64_t)r.r_addend;
        }
        return 0;
    }
    load(e, e->init_array_offset + i * 8, &value, sizeof value);
    return value;
}

/* Whether one of the instructions at the start of a function is 0f `second` (`third`: value of the
 * middle bits of the byte after it, -1 = any). */
static int code_has(const struct bl_elf *e, uint64_t address, unsigned second, int third)
{
#if defined(__x86_64__)
    uint64_t at, room;
    if (locate(e, address, 1, &at, &room) != 0)
        return 0;
    for (uint64_t i = 0; i + 2 < room && i < CODE_PREFIX; i++) {
        const unsigned char *c = e->bytes + at + i;
        if (c[0] == 0xc3)
            break;
        if (c[0] == 0x0f && c[1] == second && (third < 0 || ((c[2] >> 3) & 7) == third))
            return 1;
    }
#else
    (void)e, (void)address, (void)second, (void)third;
#endif
    return 0;
}

static int is_cpuid(const struct bl_elf *e, uint64_t address)
{
    return code_has(e, address, 0xa2, -1);
}

static int is_fast_math(const struct bl_elf *e, uint64_t address, const char *name)
{
    return (name != NULL && strcmp(name, "set_fast_math") == 0) ||
           code_has(e, address, 0xae, 2); /* ldmxcsr */
}

static int toolchain_owns(const char *name)
{
    static const char *const own[] = {
        "frame_dummy",          /* crtbeginS.o of gcc, used by clang too */
        "__do_init",            /* crtbegin of compiler-rt */
        "__cpu_indicator_init", /* libgcc, x86-64 */
        "init_cpu_features",    /* libgcc, aarch64 */
        "__init_cpu_features",
        "init_have_lse_atomics",
        "__llvm_gcov_init", /* clang --coverage */
    };
    static const char *const sanitizers[] = {"asan.module_ctor", "tsan.module_ctor",
                                             "msan.module_ctor", "sancov.module_ctor"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i]) == 0)
            return 1;
    /* gcc's names for what it makes itself; priorities up to 100 belong to the compiler. */
    if (strncmp(name, "_sub_I_00100_", 13) == 0)
        return 1; /* --coverage */
    if (!SANITIZED)
        return 0;
    if (strncmp(name, "_sub_I_00099_", 13) == 0)
        return 1;
    for (size_t i = 0; i < sizeof sanitizers / sizeof *sanitizers; i++)
        if (strncmp(name, sanitizers[i], strlen(sanitizers[i])) == 0)
            return 1;
    return 0;
}

/* Without section headers: the _init that glibc's crti.o and crtn.o make. */
static int is_startup_init(const struct bl_elf *e, uint64_t address)
{
#if defined(__x86_64__)
    static const unsigned char landing[] = {0xf3, 0x0f, 0x1e, 0xfa}; /* endbr64 */
    static const unsigned char head[] = {0x48, 0x83, 0xec, 0x08, 0x48, 0x8b, 0x05};
    static const unsigned char tail[] = {0x48, 0x85, 0xc0, 0x74, 0x02, 0xff,
                                         0xd0, 0x48, 0x83, 0xc4, 0x08, 0xc3};
    uint64_t at;
    if (locate(e, address, 27, &at, NULL) != 0)
        return 0;
    const unsigned char *c = e->bytes + at;
    if (memcmp(c, landing, sizeof landing) == 0)
        c += sizeof landing;
    return memcmp(c, head, sizeof head) == 0 && memcmp(c + sizeof head + 4, tail, sizeof tail) == 0;
#else
    (void)e, (void)address;
    return 0;
#endif
}

static int refuse_constructor(const struct bl_elf *e, uint64_t address, const char *name,
                              struct bl_error *err)
{
    if (is_fast_math(e, address, name))
        return refuse(e, err,
                      "a constructor sets flush-to-zero for the whole process, as "
                      "-ffast-math and -Ofast make it; build and link without them");
    return refuse(e, err,
                  "it has a constructor%s%.100s%s, code that would run before any check; "
                  "move it to create (no constructors, no C++ objects with static storage; "
                  "-ffast-math adds one too)",
                  name != NULL ? " '" : "", name != NULL ? name : "", name != NULL ? "'" : "");
}

int bl_elf_constructors(const struct bl_elf *e, struct bl_error *err)
{
    int nameless = 0;
    if (e->has_init) {
        Elf64_Shdr s;
        if (e->section_count > 0 ? find_section(e, ".init", 0, &s) != 0 || s.sh_addr != e->init
                                 : !is_startup_init(e, e->init))
            return refuse(e, err, "DT_INIT is not the C startup files' _init; link without -init");
    }
    if (e->init_count > MAX_CONSTRUCTORS)
        return refuse(e, err, "%" PRIu64 " constructors", e->init_count);
    for (uint64_t i = 0; i < e->init_count; i++) {
        uint64_t address = slot_target(e, i);
        const char *name = function_name(e, address);
        if (name != NULL) {
            if (!toolchain_owns(name))
                return refuse_constructor(e, address, name, err);
        } else if (is_fast_math(e, address, NULL)) {
            return refuse_constructor(e, address, NULL, err);
        } else if (!is_cpuid(e, address)) {
            /* The startup files bring frame_dummy and _init together. */
            if (!e->has_init || ++nameless > 1)
                return refuse_constructor(e, address, NULL, err);
        }
    }
    return 0;
}
