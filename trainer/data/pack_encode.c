#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "data/pack_internal.h"

int bl_encoder_start(struct bl_encoder *e, const struct bl_pack *pack, struct bl_error *err)
{
    const struct bl_plugin_instance *t = pack->tokenizer;
    struct bl_tokenizer_info info = {.size = sizeof(info), .end_of_document = -1};

    t->ops.tokenizer.describe(t->self, &info);
    if (info.vocab < 1 || info.vocab > (uint64_t)1 << 31 || info.end_of_document < -1 ||
        info.end_of_document >= (int64_t)info.vocab)
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "tokenizer %s says: vocabulary %llu, end of document %lld; expected "
                            "1 ... 2^31, and an id or -1",
                            t->name, (unsigned long long)info.vocab,
                            (long long)info.end_of_document);
    *e = (struct bl_encoder){.tokenizer = t,
                             .vocab = info.vocab,
                             .end_of_document = info.end_of_document,
                             .documents = pack->documents,
                             .key = pack->key,
                             .width = info.vocab <= 65536 ? 2 : 4};
    return 0;
}

/* ---- errors -----------------------------------------------------------------------------------*/

/* Number of the line that holds a byte of a file, from 1; 0 when it cannot be read again. */
static uint64_t line_of(const char *path, uint64_t offset)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    uint64_t line = 1, at = 0;
    char buffer[8192];

    if (fd < 0)
        return 0;
    while (at < offset) {
        size_t want = offset - at < sizeof(buffer) ? (size_t)(offset - at) : sizeof(buffer);
        ssize_t got = pread(fd, buffer, want, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            line = 0;
            break;
        }
        for (ssize_t i = 0; i < got; i++)
            line += buffer[i] == '\n';
        at += (uint64_t)got;
    }
    close(fd);
    return line;
}

/* FILE:LINE for byte `at` of the chunk; buffer of at least 32 bytes for the number. */
static const char *line_text(const struct bl_chunk *c, size_t at, char *buffer)
{
    uint64_t line = line_of(c->path, c->offset + at);

    buffer[0] = '\0';
    if (line > 0)
        snprintf(buffer, 32, ":%llu", (unsigned long long)line);
    return buffer;
}

static int no_memory(struct bl_chunk *c)
{
    return bl_error_set(&c->err, BL_EXIT_FAILED, "%s: no memory for its ids", c->path);
}

/* ---- ids --------------------------------------------------------------------------------------*/

static int encode(const struct bl_encoder *e, struct bl_chunk *c, const char *text, size_t bytes,
                  uint64_t *count, struct bl_error *err)
{
    const struct bl_plugin_instance *t = e->tokenizer;

    return t->ops.tokenizer.encode(t->self, text, bytes, c->ids, c->ids_capacity, count, err);
}

static int reserve_ids(struct bl_chunk *c, uint64_t count)
{
    int32_t *ids;

    if (count <= c->ids_capacity)
        return 0;
    ids = count <= SIZE_MAX / sizeof(*ids) ? realloc(c->ids, count * sizeof(*ids)) : NULL;
    if (!ids)
        return no_memory(c);
    c->ids = ids;
    c->ids_capacity = count;
    return 0;
}

static void store16(unsigned char *to, const int32_t *ids, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        to[2 * i] = (unsigned char)ids[i];
        to[2 * i + 1] = (unsigned char)((uint32_t)ids[i] >> 8);
    }
}

static void store32(unsigned char *to, const int32_t *ids, uint64_t count)
{
    for (uint64_t i = 0; i < 4 * count; i++)
        to[i] = (unsigned char)((uint32_t)ids[i / 4] >> 8 * (i % 4));
}

/* c->ids, after a check, to the end of c->packed. */
static int append(const struct bl_encoder *e, struct bl_chunk *c, uint64_t count)
{
    size_t used = c->tokens * e->width, needed = used + count * e->width;
    uint32_t most = 0;

    if (count == 0)
        return 0;
    for (uint64_t i = 0; i < count; i++) /* a negative id is a large one */
        if ((uint32_t)c->ids[i] > most)
            most = (uint32_t)c->ids[i];
    if (most >= e->vocab)
        return bl_error_set(&c->err, BL_EXIT_PLUGIN,
                            "tokenizer %s made the id %ld; its vocabulary has %llu",
                            e->tokenizer->name, (long)(int32_t)most, (unsigned long long)e->vocab);
    if (needed > c->packed_capacity) {
        size_t capacity = needed + needed / 2;
        unsigned char *packed = realloc(c->packed, capacity);
        if (!packed)
            return no_memory(c);
        c->packed = packed;
        c->packed_capacity = capacity;
    }
    (e->width == 2 ? store16 : store32)(c->packed + used, c->ids, count);
    c->tokens += count;
    return 0;
}

static int append_text(const struct bl_encoder *e, struct bl_chunk *c, const char *text,
                       size_t bytes, struct bl_error *err)
{
    for (size_t piece; bytes > 0; text += piece, bytes -= piece) {
        uint64_t count = 0;
        piece = bl_pack_piece(text, bytes);
        if (reserve_ids(c, piece + 16) != 0 || encode(e, c, text, piece, &count, err) != 0)
            return -1;
        if (count > c->ids_capacity &&
            (reserve_ids(c, count) != 0 || encode(e, c, text, piece, &count, err) != 0))
            return -1;
        if (append(e, c, count) != 0)
            return -1;
        c->text_bytes += piece;
    }
    return 0;
}

static int end_document(const struct bl_encoder *e, struct bl_chunk *c)
{
    c->documents++;
    if (e->end_of_document < 0)
        return 0;
    if (reserve_ids(c, 1) != 0)
        return -1;
    c->ids[0] = (int32_t)e->end_of_document;
    return append(e, c, 1);
}

/* ---- the three kinds of documents -------------------------------------------------------------*/

/* The tokenizer refused something in text[from, from + bytes): the message says in which line. */
static int refused(const struct bl_encoder *e, struct bl_chunk *c, size_t from, size_t bytes,
                   const struct bl_error *why)
{
    char line[32];

    for (size_t at = from, n; at < from + bytes; at += n) {
        struct bl_error own = BL_ERROR_INIT;
        const char *end = memchr(c->text + at, '\n', from + bytes - at);
        uint64_t count;
        n = end ? (size_t)(end - c->text) + 1 - at : from + bytes - at;
        if (encode(e, c, c->text + at, n, &count, &own) == 0)
            continue;
        return bl_error_set(&c->err, BL_EXIT_DATA, "%s%s: in the text from byte %llu on: %s",
                            c->path, line_text(c, at, line), (unsigned long long)(c->offset + at),
                            own.text);
    }
    return bl_error_set(&c->err, BL_EXIT_DATA, "%s: in the text from byte %llu on: %s", c->path,
                        (unsigned long long)(c->offset + from), why->text);
}

static int encode_files(const struct bl_encoder *e, struct bl_chunk *c)
{
    struct bl_error err = BL_ERROR_INIT;

    if (append_text(e, c, c->text, c->bytes, &err) != 0)
        return c->err.code ? -1 : refused(e, c, 0, c->bytes, &err);
    return c->ends ? end_document(e, c) : 0;
}

static int encode_lines(const struct bl_encoder *e, struct bl_chunk *c)
{
    for (size_t at = 0, n; at < c->bytes; at += n) {
        struct bl_error err = BL_ERROR_INIT;
        const char *end = memchr(c->text + at, '\n', c->bytes - at);
        n = end ? (size_t)(end - c->text) + 1 - at : c->bytes - at;
        size_t bytes = n - (end && e->end_of_document >= 0);
        if (append_text(e, c, c->text + at, bytes, &err) != 0)
            return c->err.code ? -1 : refused(e, c, at, bytes, &err);
        if (bytes > 0 && c->text[at] != '\n' && end_document(e, c) != 0)
            return -1;
    }
    return 0;
}

static int append_json(const struct bl_encoder *e, struct bl_chunk *c, size_t at,
                       const json_t *object)
{
    const json_t *value = json_object_get(object, e->key);
    const char *text = json_string_value(value);
    size_t bytes = json_string_length(value);
    struct bl_error err = BL_ERROR_INIT;
    char line[32];
    int rc;

    if (!text)
        return bl_error_set(&c->err, BL_EXIT_DATA,
                            "%s%s: no string under the key \"%s\"; --documents json:KEY names "
                            "another",
                            c->path, line_text(c, at, line), e->key);
    if (bytes == 0)
        return 0;
    rc = append_text(e, c, text, bytes, &err);
    if (rc == 0 && e->end_of_document < 0 && text[bytes - 1] != '\n') {
        rc = append_text(e, c, "\n", 1, &err);
        c->text_bytes -= rc == 0;
    }
    if (rc != 0)
        return c->err.code ? -1
                           : bl_error_set(&c->err, BL_EXIT_DATA, "%s%s: \"%s\": %s", c->path,
                                          line_text(c, at, line), e->key, err.text);
    return end_document(e, c);
}

static int encode_json(const struct bl_encoder *e, struct bl_chunk *c)
{
    for (size_t at = 0, n; at < c->bytes; at += n) {
        const char *from = c->text + at, *end = memchr(from, '\n', c->bytes - at);
        json_error_t why;
        json_t *object;
        char line[32];
        size_t blank = 0;
        int rc;
        n = end ? (size_t)(end - from) + 1 : c->bytes - at;
        while (blank < n && strchr(" \t\r\n", from[blank]) && from[blank] != '\0')
            blank++;
        if (blank == n)
            continue;
        object = json_loadb(from, n, JSON_ALLOW_NUL, &why);
        if (!object)
            return bl_error_set(&c->err, BL_EXIT_DATA, "%s%s: byte %d of the line: no JSON: %s",
                                c->path, line_text(c, at, line), why.position, why.text);
        rc = append_json(e, c, at, object);
        json_decref(object);
        if (rc != 0)
            return -1;
    }
    return 0;
}

void bl_encoder_run(const struct bl_encoder *e, struct bl_chunk *c)
{
    c->tokens = c->documents = c->text_bytes = 0;
    c->err = (struct bl_error)BL_ERROR_INIT;
    switch (e->documents) {
    case BL_DOCUMENTS_FILES:
        c->failed = encode_files(e, c);
        break;
    case BL_DOCUMENTS_LINES:
        c->failed = encode_lines(e, c);
        break;
    case BL_DOCUMENTS_JSON:
        c->failed = encode_json(e, c);
        break;
    }
}
