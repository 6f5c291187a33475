#include "checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <xxhash.h>

#include "base/random.h"
#include "base/strings.h"

/* The format's own limit for the JSON header. */
#define HEADER_LIMIT 100000000u

static const struct {
    const char *name;
    uint32_t dtype;
    uint64_t bytes;
} dtypes[] = {{"F32", BL_FP32, 4}, {"F64", BL_FP64, 8}, {"BF16", BL_BF16, 2}};

enum { DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

static int dtype_row(uint32_t dtype)
{
    for (int i = 0; i < DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return i;
    return -1;
}

/* ---- writing --------------------------------------------------------------------------------- */

enum { CHUNK = 1 << 18, AHEAD = 8 << 20 };

struct output {
    int fd;
    XXH64_state_t *sum;
    uint64_t written, begun; /* of `written`, what the disk was told of */
};

/* Chunks stay in the cache between the hash and the copy into the kernel. The disk begins early:
 * else it would idle until the fsync. */
static int write_all(struct output *o, const void *bytes, uint64_t n)
{
    const char *from = bytes;

    while (n > 0) {
        ssize_t wrote = write(o->fd, from, n < CHUNK ? n : CHUNK);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0) {
            if (wrote == 0)
                errno = ENOSPC;
            return -1;
        }
        XXH64_update(o->sum, from, (size_t)wrote);
        from += wrote;
        n -= (uint64_t)wrote;
        o->written += (uint64_t)wrote;
        if (o->written - o->begun >= AHEAD) { /* advice: what fails, the fsync finds out */
            (void)sync_file_range(o->fd, (off_t)o->begun, (off_t)(o->written - o->begun),
                                  SYNC_FILE_RANGE_WRITE);
            o->begun = o->written;
        }
    }
    return 0;
}

static int add_metadata(json_t *root, const char *const *metadata)
{
    json_t *table = json_object();

    if (!table || json_object_set_new(root, "__metadata__", table) != 0)
        return -1;
    for (; metadata[0]; metadata += 2)
        if (json_object_get(table, metadata[0]) ||
            json_object_set_new(table, metadata[0], json_string(metadata[1])) != 0)
            return -1;
    return 0;
}

static int add_tensor(json_t *root, const struct bl_tensor *t, uint64_t *offset, const char *path,
                      struct bl_error *err)
{
    int row = dtype_row(t->dtype);
    uint64_t count = 1, bytes;
    json_t *entry, *shape;

    if (!t->name || t->name[0] == '\0' || strcmp(t->name, "__metadata__") == 0)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: a tensor without a usable name", path);
    if (row < 0)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: tensor %s has dtype %u, which is not stored",
                            path, t->name, t->dtype);
    if (t->ndim > 4)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: tensor %s has %u dimensions, at most 4", path,
                            t->name, t->ndim);
    for (uint32_t i = 0; i < t->ndim; i++)
        if (t->dims[i] > INT64_MAX || __builtin_mul_overflow(count, t->dims[i], &count))
            return bl_error_set(err, BL_EXIT_FAILED, "%s: tensor %s is too large", path, t->name);
    if (count != t->count || (count > 0 && !t->data) ||
        __builtin_mul_overflow(count, dtypes[row].bytes, &bytes) ||
        bytes > (uint64_t)INT64_MAX - *offset)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: tensor %s: shape and data do not fit", path,
                            t->name);
    if (json_object_get(root, t->name))
        return bl_error_set(err, BL_EXIT_FAILED, "%s: two tensors are named %s", path, t->name);
    shape = json_array();
    for (uint32_t i = 0; shape && i < t->ndim; i++)
        json_array_append_new(shape, json_integer((json_int_t)t->dims[i]));
    entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype", dtypes[row].name, "shape", shape,
                      "data_offsets", (json_int_t)*offset, (json_int_t)(*offset + bytes));
    if (!entry || json_array_size(shape) != t->ndim ||
        json_object_set_new(root, t->name, entry) != 0)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: tensor %s: no memory, or a name not in UTF-8",
                            path, t->name);
    *offset += bytes;
    return 0;
}

/* The header, padded with spaces so that the data begins at a multiple of 8. */
static char *make_header(const char *path, const struct bl_tensor *tensors, size_t count,
                         const char *const *metadata, size_t *length, struct bl_error *err)
{
    json_t *root = json_object();
    char *text = NULL, *padded;
    uint64_t offset = 0;
    size_t n, total;

    if (!root || (metadata && metadata[0] && add_metadata(root, metadata) != 0)) {
        bl_error_set(err, BL_EXIT_FAILED,
                     "%s: metadata cannot be written: a key twice, or text not in UTF-8", path);
        goto done;
    }
    for (size_t i = 0; i < count; i++)
        if (add_tensor(root, &tensors[i], &offset, path, err) != 0)
            goto done;
    text = json_dumps(root, JSON_COMPACT);
    n = text ? strlen(text) : 0;
    total = (n + 7) / 8 * 8;
    padded = text ? realloc(text, total + 1) : NULL;
    if (!padded || total > HEADER_LIMIT) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: %s", path,
                     padded ? "names, shapes and metadata exceed the format's 100 MB"
                            : "no memory for the header");
        free(padded ? padded : text);
        text = NULL;
        goto done;
    }
    text = padded;
    memset(text + n, ' ', total - n);
    *length = total;
done:
    json_decref(root);
    return text;
}

int bl_safetensors_write(const char *path, const struct bl_tensor *tensors, size_t count,
                         const char *const *metadata, uint64_t *checksum, struct bl_error *err)
{
    struct output o = {.fd = -1, .sum = XXH64_createState()};
    unsigned char prefix[8];
    size_t length = 0;
    char *header = make_header(path, tensors, count, metadata, &length, err);
    int answer = -1;

    if (!header)
        goto done;
    if (!o.sum) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", path);
        goto done;
    }
    XXH64_reset(o.sum, 0);
    o.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (o.fd < 0) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: %s", path, strerror(errno));
        goto done;
    }
    for (int i = 0; i < 8; i++)
        prefix[i] = (unsigned char)((uint64_t)length >> (8 * i));
    answer = write_all(&o, prefix, 8) != 0 || write_all(&o, header, length) != 0 ? -1 : 0;
    for (size_t i = 0; i < count && answer == 0; i++)
        answer = write_all(&o, tensors[i].data,
                           tensors[i].count * dtypes[dtype_row(tensors[i].dtype)].bytes);
    if (answer == 0)
        answer = fsync(o.fd);
    if (answer != 0) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: not written: %s", path, strerror(errno));
        close(o.fd);
    } else if (close(o.fd) != 0) {
        answer = bl_error_set(err, BL_EXIT_FAILED, "%s: not written: %s", path, strerror(errno));
    }
    if (answer != 0)
        unlink(path);
    else
        *checksum = XXH64_digest(o.sum);
done:
    XXH64_freeState(o.sum);
    free(header);
    return answer;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct bl_safetensors {
    void *map;
    uint64_t size;
    json_t *root; /* names and metadata point into it */
    size_t count;
    struct bl_tensor *tensors; /* in the header's order */
    void **copies;             /* (count,) of tensors that lie unaligned in the file */
};

static int refuse(struct bl_error *err, const char *path, const char *name, const char *what)
{
    return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s: tensor %.200s: %s", path, name, what);
}

static int get_unsigned(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return -1;
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

/* One entry of the header -> tensor, and its byte range in the data part. */
static int parse_tensor(const char *path, const char *name, const json_t *entry, uint64_t data_size,
                        struct bl_tensor *t, uint64_t range[2], struct bl_error *err)
{
    const json_t *dtype = json_object_get(entry, "dtype");
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    uint64_t bytes;
    int row = 0;

    if (!json_is_object(entry) || json_object_size(entry) != 3 || !json_is_string(dtype) ||
        !json_is_array(shape) || !json_is_array(offsets) || json_array_size(offsets) != 2)
        return refuse(err, path, name, "its entry is not {dtype, shape, data_offsets}");
    while (row < DTYPES && strcmp(dtypes[row].name, json_string_value(dtype)) != 0)
        row++;
    if (row == DTYPES)
        return bl_error_set(err, BL_EXIT_CHECKPOINT,
                            "%s: tensor %.200s: dtype %.20s is not read; F32, F64 and BF16 are",
                            path, name, json_string_value(dtype));
    if (json_array_size(shape) > 4)
        return refuse(err, path, name, "more than 4 dimensions");
    t->size = sizeof(*t);
    t->dtype = dtypes[row].dtype;
    t->device = BL_DEVICE_CPU;
    t->ndim = (uint32_t)json_array_size(shape);
    t->count = 1;
    t->name = name;
    t->key = bl_hash(name);
    for (uint32_t i = 0; i < t->ndim; i++)
        if (get_unsigned(json_array_get(shape, i), &t->dims[i]) != 0 ||
            __builtin_mul_overflow(t->count, t->dims[i], &t->count))
            return refuse(err, path, name, "its shape is no list of sizes, or too large");
    if (get_unsigned(json_array_get(offsets, 0), &range[0]) != 0 ||
        get_unsigned(json_array_get(offsets, 1), &range[1]) != 0 || range[0] > range[1] ||
        range[1] > data_size)
        return refuse(err, path, name, "its data_offsets do not lie inside the file");
    if (__builtin_mul_overflow(t->count, dtypes[row].bytes, &bytes) || range[1] - range[0] != bytes)
        return refuse(err, path, name, "shape and data_offsets do not agree");
    return 0;
}

struct range {
    uint64_t begin, end;
    const char *name;
};

static int by_begin(const void *left, const void *right)
{
    const struct range *l = left, *r = right;

    if (l->begin != r->begin)
        return l->begin < r->begin ? -1 : 1;
    return l->end < r->end ? -1 : l->end > r->end;
}

static int check_cover(const char *path, struct range *ranges, size_t n, uint64_t data_size,
                       struct bl_error *err)
{
    uint64_t at = 0;

    qsort(ranges, n, sizeof(*ranges), by_begin);
    for (size_t i = 0; i < n; i++) {
        if (ranges[i].begin != at)
            return refuse(err, path, ranges[i].name,
                          ranges[i].begin < at ? "overlaps another tensor"
                                               : "a hole in the data comes before it");
        at = ranges[i].end;
    }
    if (at != data_size)
        return bl_error_set(err, BL_EXIT_CHECKPOINT,
                            "%s: %llu bytes after the last tensor belong to nothing", path,
                            (unsigned long long)(data_size - at));
    return 0;
}

/* The format allows data at any byte; a tensor whose elements lie unaligned is copied. */
static int align(struct bl_safetensors *s, size_t i)
{
    struct bl_tensor *t = &s->tensors[i];
    uint64_t bytes = dtypes[dtype_row(t->dtype)].bytes;

    if (t->count == 0 || (uintptr_t)t->data % bytes == 0)
        return 0;
    s->copies[i] = malloc(t->count * bytes);
    if (!s->copies[i])
        return -1;
    memcpy(s->copies[i], t->data, t->count * bytes);
    t->data = s->copies[i];
    return 0;
}

static int parse_metadata(const char *path, json_t *table, struct bl_error *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object(table))
        return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s: __metadata__ is not an object", path);
    json_object_foreach(table, key, value)
    {
        if (!json_is_string(value))
            return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s: metadata %.200s is not a string",
                                path, key);
    }
    return 0;
}

static int parse_header(struct bl_safetensors *s, const char *path, struct bl_error *err)
{
    const unsigned char *bytes = s->map;
    uint64_t length = 0, data_size;
    struct range *ranges = NULL;
    json_error_t where;
    const char *name;
    json_t *entry;
    int answer = -1;

    for (int i = 7; i >= 0; i--)
        length = length << 8 | bytes[i];
    if (length > HEADER_LIMIT || length > s->size - 8)
        return bl_error_set(err, BL_EXIT_CHECKPOINT,
                            "%s: byte 0: a header of %llu bytes in a file of %llu (cut, or no "
                            "safetensors file)",
                            path, (unsigned long long)length, (unsigned long long)s->size);
    if (length < 2 || bytes[8] != '{')
        return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s: byte 8: the header is no JSON object",
                            path);
    s->root = json_loadb((const char *)bytes + 8, length, JSON_REJECT_DUPLICATES, &where);
    if (!s->root)
        return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s: header at byte %lld: %s", path,
                            (long long)where.position + 8, where.text);
    data_size = s->size - 8 - length;
    s->tensors = calloc(json_object_size(s->root) + 1, sizeof(*s->tensors));
    s->copies = calloc(json_object_size(s->root) + 1, sizeof(*s->copies));
    ranges = calloc(json_object_size(s->root) + 1, sizeof(*ranges));
    if (!s->tensors || !s->copies || !ranges) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: no memory for its tensors", path);
        goto done;
    }
    json_object_foreach(s->root, name, entry)
    {
        uint64_t range[2];
        if (strcmp(name, "__metadata__") == 0) {
            if (parse_metadata(path, entry, err) != 0)
                goto done;
            continue;
        }
        if (parse_tensor(path, name, entry, data_size, &s->tensors[s->count], range, err) != 0)
            goto done;
        ranges[s->count].begin = range[0];
        ranges[s->count].end = range[1];
        ranges[s->count].name = name;
        s->tensors[s->count].data = (void *)(uintptr_t)(bytes + 8 + length + range[0]);
        s->count++;
    }
    if (check_cover(path, ranges, s->count, data_size, err) != 0)
        goto done;
    for (size_t i = 0; i < s->count; i++) {
        if (align(s, i) != 0) {
            bl_error_set(err, BL_EXIT_FAILED, "%s: no memory for tensor %.200s", path,
                         s->tensors[i].name);
            goto done;
        }
    }
    answer = 0;
done:
    free(ranges);
    return answer;
}

int bl_safetensors_open(const char *path, struct bl_safetensors **out, struct bl_error *err)
{
    struct bl_safetensors *s = calloc(1, sizeof(*s));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;

    if (!s || fd < 0 || fstat(fd, &st) != 0) {
        bl_error_set(err, BL_EXIT_CHECKPOINT, "%s: %s", path, strerror(s ? errno : ENOMEM));
        goto failed;
    }
    if (!S_ISREG(st.st_mode) || st.st_size < 8) {
        bl_error_set(err, BL_EXIT_CHECKPOINT, "%s: %s", path,
                     S_ISREG(st.st_mode) ? "shorter than 8 bytes: cut, or no safetensors file"
                                         : "not a regular file");
        goto failed;
    }
    s->size = (uint64_t)st.st_size;
    s->map = mmap(NULL, s->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (s->map == MAP_FAILED) {
        s->map = NULL;
        bl_error_set(err, BL_EXIT_CHECKPOINT, "%s: cannot be mapped: %s", path, strerror(errno));
        goto failed;
    }
    if (parse_header(s, path, err) != 0)
        goto failed;
    close(fd);
    *out = s;
    return 0;
failed:
    if (fd >= 0)
        close(fd);
    bl_safetensors_close(s);
    return -1;
}

void bl_safetensors_close(struct bl_safetensors *s)
{
    if (!s)
        return;
    if (s->copies)
        for (size_t i = 0; i <= s->count; i++)
            free(s->copies[i]);
    free(s->copies);
    free(s->tensors);
    json_decref(s->root);
    if (s->map)
        munmap(s->map, s->size);
    free(s);
}

size_t bl_safetensors_count(const struct bl_safetensors *s)
{
    return s->count;
}

const struct bl_tensor *bl_safetensors_tensor(const struct bl_safetensors *s, size_t i)
{
    return i < s->count ? &s->tensors[i] : NULL;
}

const struct bl_tensor *bl_safetensors_find(const struct bl_safetensors *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->tensors[i].name, name) == 0)
            return &s->tensors[i];
    return NULL;
}

const char *bl_safetensors_metadata(const struct bl_safetensors *s, const char *key)
{
    return json_string_value(json_object_get(json_object_get(s->root, "__metadata__"), key));
}
