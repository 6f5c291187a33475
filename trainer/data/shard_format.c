#include "data/shard_format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MAGIC16 = 20240520,
    VERSION16 = 1,
    MAGIC32 = 20240801,
    VERSION32 = 7,
    BIG = 16,   /* a high half of this or more makes an id of 2^20 or more */
    ENOUGH = 12 /* words that make a pattern */
};

typedef unsigned long long ull;

static const char *const names[] = {"auto", "llmc", "npy", "raw16", "raw32", "text"};

const char *bl_shard_format_name(enum bl_shard_format format)
{
    return names[format];
}

int bl_shard_format_parse(const char *name, enum bl_shard_format *out)
{
    for (int i = BL_SHARD_AUTO; i <= BL_SHARD_RAW32; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum bl_shard_format)i;
            return 0;
        }
    }
    return -1;
}

static int __attribute__((format(printf, 2, 3))) refuse(char *why, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    vsnprintf(why, BL_SHARD_WHY, format, list);
    va_end(list);
    return -1;
}

/* The file holds `items` ids of `width` bytes from `start` on and nothing else. `where` says what
 * part of the header claims so. */
static int check_length(const struct bl_shard_layout *l, uint64_t size, const char *where,
                        char *why)
{
    uint64_t have = size > l->start ? size - l->start : 0;

    if (have % l->width == 0 && have / l->width == l->items)
        return 0;
    return refuse(why,
                  "%s says %llu tokens of %u bits after %llu bytes; the file has %llu bytes "
                  "(%s?)",
                  where, (ull)l->items, 8 * l->width, (ull)l->start, (ull)size,
                  have / l->width < l->items ? "cut" : "appended to");
}

/* ---- llm.c ---- */

static int is_llmc(const unsigned char *b, size_t n)
{
    return n >= 4 && (bl_little32(b) == MAGIC16 || bl_little32(b) == MAGIC32);
}

static int parse_llmc(const unsigned char *b, size_t n, uint64_t size, struct bl_shard_layout *l,
                      char *why)
{
    uint32_t magic = n >= 4 ? bl_little32(b) : 0, version, expected;

    if (n >= 4 && !is_llmc(b, n))
        return refuse(why,
                      "byte 0: magic number %lu, not %d (llm.c, uint16) or %d (llm.c, uint32): no "
                      "llm.c token shard",
                      (unsigned long)magic, MAGIC16, MAGIC32);
    if (n < BL_SHARD_HEADER)
        return refuse(why, "%llu bytes, a token shard of llm.c begins with a header of %d (cut?)",
                      (ull)size, BL_SHARD_HEADER);
    version = bl_little32(b + 4);
    expected = magic == MAGIC16 ? VERSION16 : VERSION32;
    if (version != expected)
        return refuse(why, "byte 4: version %lu, only version %lu is read with magic number %lu",
                      (unsigned long)version, (unsigned long)expected, (unsigned long)magic);
    *l = (struct bl_shard_layout){.format = BL_SHARD_LLMC,
                                  .width = magic == MAGIC16 ? 2 : 4,
                                  .start = BL_SHARD_HEADER,
                                  .items = bl_little32(b + 8)};
    if (bl_little32(b + 16) == BL_SHARD_VOCAB_TAG) {
        l->vocab = bl_little32(b + 12);
        if (l->vocab == 0 || l->vocab > (l->width == 2 ? UINT16_MAX + 1u : (uint32_t)INT32_MAX))
            return refuse(why, "byte 12: a vocabulary of %llu ids does not go with ids of %u bits",
                          (ull)l->vocab, 8 * l->width);
    }
    return check_length(l, size, "byte 8: the header", why);
}

/* ---- numpy ---- */

static const unsigned char numpy_magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

static int is_npy(const unsigned char *b, size_t n)
{
    return n >= sizeof(numpy_magic) && memcmp(b, numpy_magic, sizeof(numpy_magic)) == 0;
}

/* The header is a Python dictionary in text. */
struct cursor {
    const char *at, *end;
};

static void skip_space(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n'))
        c->at++;
}

static int take(struct cursor *c, char wanted)
{
    skip_space(c);
    if (c->at == c->end || *c->at != wanted)
        return 0;
    c->at++;
    return 1;
}

static int take_word(struct cursor *c, const char *word)
{
    size_t length = strlen(word);

    skip_space(c);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0)
        return 0;
    c->at += length;
    return 1;
}

/* A quoted string without escapes that fits into `out` with its NUL. */
static int take_string(struct cursor *c, char *out, size_t room)
{
    size_t used = 0;
    char quote;

    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"'))
        return 0;
    for (quote = *c->at++; c->at < c->end && *c->at != quote; c->at++) {
        if (used + 1 == room || *c->at < ' ' || *c->at > '~' || *c->at == '\\')
            return 0;
        out[used++] = *c->at;
    }
    out[used] = '\0';
    return take(c, quote);
}

/* "(12,)": number of dimensions and the last one's length, or 0 dimensions for "()". */
static int take_shape(struct cursor *c, unsigned *dimensions, uint64_t *length)
{
    *dimensions = 0;
    *length = 0;
    if (!take(c, '('))
        return 0;
    while (!take(c, ')')) {
        skip_space(c);
        if (c->at == c->end || *c->at < '0' || *c->at > '9')
            return 0;
        for (*length = 0; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
            uint64_t digit = (uint64_t)(*c->at - '0');
            if (*length > (UINT64_MAX - digit) / 10)
                return 0;
            *length = 10 * *length + digit;
        }
        ++*dimensions;
        if (!take(c, ','))
            return take(c, ')');
    }
    return 1;
}

struct npy {
    char descr[16];
    int fortran;
    unsigned dimensions;
    uint64_t length;
};

enum { HAS_DESCR = 1, HAS_ORDER = 2, HAS_SHAPE = 4 };

static int parse_dictionary(struct cursor *c, struct npy *a)
{
    char key[16];
    int seen = 0, got;

    if (!take(c, '{'))
        return -1;
    while (!take(c, '}')) {
        if (!take_string(c, key, sizeof(key)) || !take(c, ':'))
            return -1;
        if (strcmp(key, "descr") == 0) {
            got = HAS_DESCR;
            skip_space(c);
            if (c->at < c->end && *c->at == '[') { /* fields; parse_npy refuses the type */
                strcpy(a->descr, "record");
                return 0;
            }
            if (!take_string(c, a->descr, sizeof(a->descr)))
                return -1;
        } else if (strcmp(key, "fortran_order") == 0) {
            got = HAS_ORDER;
            a->fortran = take_word(c, "True");
            if (!a->fortran && !take_word(c, "False"))
                return -1;
        } else if (strcmp(key, "shape") == 0) {
            got = HAS_SHAPE;
            if (!take_shape(c, &a->dimensions, &a->length))
                return -1;
        } else {
            return -1;
        }
        if (seen & got)
            return -1;
        seen |= got;
        if (!take(c, ',')) {
            if (!take(c, '}'))
                return -1;
            break;
        }
    }
    skip_space(c);
    return seen == (HAS_DESCR | HAS_ORDER | HAS_SHAPE) && c->at == c->end ? 0 : -1;
}

static int parse_npy(const unsigned char *b, size_t n, uint64_t size, struct bl_shard_layout *l,
                     char *why)
{
    struct npy a = {{0}, 0, 0, 0};
    struct cursor c;
    uint64_t prefix, length;
    unsigned width;

    if (!is_npy(b, n))
        return refuse(why, "byte 0: no \"\\x93NUMPY\", so this is no .npy file (memory maps that "
                           "only carry the ending are raw16 or raw32)");
    if (n < 12)
        return refuse(why, "%llu bytes: the .npy header is cut", (ull)size);
    if (b[6] < 1 || b[6] > 3 || b[7] != 0)
        return refuse(why, "byte 6: .npy version %d.%d, only 1.0, 2.0 and 3.0 are read", b[6],
                      b[7]);
    prefix = b[6] == 1 ? 10 : 12;
    length = b[6] == 1 ? bl_little16(b + 8) : bl_little32(b + 8);
    if (prefix + length > size)
        return refuse(why, "byte 8: a .npy header of %llu bytes, the file has %llu (cut?)",
                      (ull)(prefix + length), (ull)size);
    if (prefix + length > n || prefix + length > BL_SHARD_PIECE)
        return refuse(why, "byte 8: a .npy header of %llu bytes is no plain array's", (ull)length);
    c = (struct cursor){(const char *)b + prefix, (const char *)b + prefix + length};
    if (parse_dictionary(&c, &a) != 0)
        return refuse(why, "byte %llu: the .npy header cannot be read there",
                      (ull)(c.at - (const char *)b));
    width = strcmp(a.descr, "<u2") == 0                                  ? 2
            : strcmp(a.descr, "<u4") == 0 || strcmp(a.descr, "<i4") == 0 ? 4
                                                                         : 0;
    if (width == 0)
        return refuse(why,
                      "byte %llu: .npy of type '%s'%s; ids must be '<u2', '<u4' or '<i4', e.g. "
                      "np.save(file, a.astype('<u2'))",
                      (ull)prefix, a.descr, a.descr[0] == '>' ? ", big-endian" : "");
    if (a.dimensions != 1)
        return refuse(why,
                      "byte %llu: .npy of %u dimensions, ids must have one, e.g. np.save(file, "
                      "a.ravel())",
                      (ull)prefix, a.dimensions);
    if (a.fortran)
        return refuse(why, "byte %llu: .npy in Fortran order, C order is needed", (ull)prefix);
    *l = (struct bl_shard_layout){
        .format = BL_SHARD_NPY, .width = width, .start = prefix + length, .items = a.length};
    return check_length(l, size, "the .npy header", why);
}

/* ---- raw ---- */

enum look { UNCLEAR, LOOKS_16, LOOKS_32, LOOKS_64 };

/* The rule at the top of shard_format.h. */
static enum look look_at(const unsigned char *b, size_t n)
{
    size_t big[2] = {0, 0}, odd_used = 0, high = 0, low = 0;

    for (size_t i = 0; i + 4 <= n; i += 4) {
        unsigned even_word = bl_little16(b + i), odd_word = bl_little16(b + i + 2);
        big[0] += even_word >= BIG;
        big[1] += odd_word >= BIG;
        odd_used += odd_word > 0;
        if (i + 8 <= n) { /* as words of 64 bits */
            low += bl_little32(b + i) > 0 && i % 8 == 0;
            high += bl_little32(b + i + 4) > 0 && i % 8 == 0;
        }
    }
    if (high == 0 && low >= ENOUGH)
        return LOOKS_64;
    if (big[1] == 0 && big[0] >= ENOUGH)
        return LOOKS_32;
    if (big[0] + big[1] >= ENOUGH && big[0] <= 2 * big[1] && big[1] <= 2 * big[0])
        return LOOKS_16;
    if (big[0] + big[1] == 0 && odd_used >= ENOUGH)
        return LOOKS_16;
    return UNCLEAR;
}

/* Files that people name here by mistake, known by how they begin. */
static const char *other_content(const unsigned char *b, size_t n)
{
    static const struct {
        const char *what, *bytes;
        size_t length;
    } begins[] = {
        {"a gzip file", "\x1f\x8b\x08\0", 4},
        {"a zstd file", "\x28\xb5\x2f\xfd", 4},
        {"an xz file", "\xfd\x37zXZ\0", 6},
        {"a zip or .npz file", "PK\3\4", 4},
        {"a Parquet file", "PAR1", 4},
        {"an Arrow file", "ARROW1", 6},
        {"an HDF5 file", "\x89HDF\r\n\x1a\n", 8},
        {"a Megatron-LM index (name its .bin)", "MMIDIDX", 7},
    };
    size_t i;

    for (i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
        if (n >= begins[i].length && memcmp(b, begins[i].bytes, begins[i].length) == 0)
            return begins[i].what;
    for (i = 0; i < n; i++)
        if (b[i] < '\t' || (b[i] > '\r' && b[i] < ' ') || b[i] == 127)
            return NULL;
    return "text (use data.source = \"text\", or ballast data pack)";
}

/* llm.c's other files, and shards of a version to come: a date as magic, the header's rest zero. */
static int is_dated_header(const unsigned char *b, size_t n)
{
    uint32_t magic = n >= BL_SHARD_HEADER ? bl_little32(b) : 0;

    if (magic < 20200101 || magic > 20991231)
        return 0;
    for (size_t i = 20; i < BL_SHARD_HEADER; i++)
        if (b[i] != 0)
            return 0;
    return 1;
}

static int parse_raw(const unsigned char *b, size_t n, uint64_t size, enum bl_shard_format wanted,
                     struct bl_shard_layout *l, char *why)
{
    enum look look = look_at(b, n);
    const char *other;

    if (is_llmc(b, n) && n >= 8 &&
        (bl_little32(b + 4) == VERSION16 || bl_little32(b + 4) == VERSION32))
        return refuse(why, "byte 0: begins with a header of llm.c, not with ids; leave out "
                           "data.format or say \"llmc\"");
    if (is_npy(b, n))
        return refuse(why, "byte 0: begins with a .npy header, not with ids; leave out "
                           "data.format or say \"npy\"");
    if (wanted == BL_SHARD_AUTO) {
        if (is_dated_header(b, n))
            return parse_llmc(b, n, size, l, why);
        other = other_content(b, n);
        if (other)
            return refuse(why, "this is %s, no token shard", other);
    }
    if (size % 2 != 0)
        return refuse(why, "%llu bytes is odd: not a whole number of ids (cut?)", (ull)size);
    if (look == LOOKS_64)
        return refuse(why, "holds ids of 64 bits, only 16 and 32 are read; convert it, e.g. with "
                           "numpy's .astype('<u4')");
    if (wanted == BL_SHARD_AUTO && look == UNCLEAR)
        return refuse(why, "no header, and its content does not tell 16-bit from 32-bit ids; set "
                           "data.format to \"raw16\" or \"raw32\"");
    if (wanted == BL_SHARD_RAW16 && look == LOOKS_32)
        return refuse(why, "not \"raw16\": every second 16-bit word is the high half of a small "
                           "32-bit id; say \"raw32\"");
    if (wanted == BL_SHARD_RAW32 && look == LOOKS_16)
        return refuse(why, "not \"raw32\": the ids would reach 2^20 and more, they have 16 bits; "
                           "say \"raw16\"");
    if (wanted == BL_SHARD_AUTO)
        wanted = look == LOOKS_32 ? BL_SHARD_RAW32 : BL_SHARD_RAW16;
    *l = (struct bl_shard_layout){.format = wanted, .width = wanted == BL_SHARD_RAW32 ? 4 : 2};
    if (size % l->width != 0)
        return refuse(why, "%llu bytes is no multiple of 4, the size of a 32-bit id (cut?)",
                      (ull)size);
    l->items = size / l->width;
    return 0;
}

int bl_shard_parse(const unsigned char *bytes, size_t n, uint64_t size, enum bl_shard_format wanted,
                   struct bl_shard_layout *out, char why[BL_SHARD_WHY])
{
    struct bl_shard_layout l = {BL_SHARD_AUTO, 0, 0, 0, 0};
    int answer;

    if (size == 0)
        return refuse(why, "0 bytes, the file is empty");
    if (wanted == BL_SHARD_LLMC || (wanted == BL_SHARD_AUTO && is_llmc(bytes, n)))
        answer = parse_llmc(bytes, n, size, &l, why);
    else if (wanted == BL_SHARD_NPY || (wanted == BL_SHARD_AUTO && is_npy(bytes, n)))
        answer = parse_npy(bytes, n, size, &l, why);
    else
        answer = parse_raw(bytes, n, size, wanted, &l, why);
    if (answer == 0)
        *out = l;
    return answer;
}

/* ---- files ---- */

int bl_shard_pread(int fd, void *buffer, uint64_t n, uint64_t offset)
{
    char *to = buffer;

    while (n > 0) {
        ssize_t got = pread(fd, to, n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0)
            errno = 0;
        if (got <= 0)
            return -1;
        to += got;
        n -= (uint64_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

int bl_shard_open(const char *path, struct stat *st, char why[BL_SHARD_WHY])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return refuse(why, "%s", strerror(errno));
    if (fstat(fd, st) != 0)
        refuse(why, "%s", strerror(errno));
    else if (!S_ISREG(st->st_mode))
        refuse(why, "%s, a regular file is needed",
               S_ISDIR(st->st_mode) ? "is a directory" : "not a file");
    else
        return fd;
    close(fd);
    return -1;
}

int bl_shard_inspect(int fd, uint64_t size, enum bl_shard_format wanted,
                     struct bl_shard_layout *out, char why[BL_SHARD_WHY])
{
    unsigned char bytes[BL_SHARD_SAMPLE];
    size_t n = size < BL_SHARD_SAMPLE ? (size_t)size : BL_SHARD_PIECE;
    uint64_t at = 0;

    if (bl_shard_pread(fd, bytes, n, 0) != 0)
        goto unread;
    if (size >= BL_SHARD_SAMPLE && !is_llmc(bytes, n) && !is_npy(bytes, n)) {
        for (uint64_t place = 1; place <= 2; place++, n += BL_SHARD_PIECE) {
            at = place * ((size - BL_SHARD_PIECE) / 2) & ~(uint64_t)7;
            if (bl_shard_pread(fd, bytes + n, BL_SHARD_PIECE, at) != 0)
                goto unread;
        }
    }
    return bl_shard_parse(bytes, n, size, wanted, out, why);
unread:
    return refuse(why, "reading at byte %llu: %s", (ull)at,
                  errno ? strerror(errno) : "the file ends before");
}
