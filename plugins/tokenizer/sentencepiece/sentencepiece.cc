/* Tokenizer of SentencePiece models (Kudo and Richardson 2018, arXiv:1808.06226): the library that
 * made the model also reads it, so ids are those of spm_encode with the same model.
 *
 * Option model: a .model file of spm_train, as Llama, Mistral and Gemma publish them. Vocabulary
 * and end of document (</s>, where the model has one) come from the model.
 *
 * Text must be UTF-8; the first byte that is not is named. (The library itself would turn it into
 * U+FFFD without a word.) The model's own normalization applies: with "identity" and byte fallback
 * the text comes back exactly, but for U+2581, the library's mark for a space; with nmt_nfkc, the
 * default of spm_train, line ends and repeated spaces become one space. Without byte fallback
 * characters that the model never saw become <unk>. Text never makes control ids: "</s>" in a text
 * is four characters.
 *
 * Most models put a space in front of every text that is encoded. */
#include <ballast/tokenizer.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sentencepiece_processor.h>

namespace
{

constexpr uint64_t text_limit = uint64_t(1) << 30;
constexpr off_t model_limit = off_t(256) << 20;

struct tokenizer {
    const struct bl_host *host;
    sentencepiece::SentencePieceProcessor processor;
};

struct tokenizer_options {
    const char *model;
};

int32_t fail_reason(const struct bl_host *host, struct bl_error *err, const char *what,
                    const std::exception &e)
{
    if (dynamic_cast<const std::bad_alloc *>(&e))
        return host->fail(host, err, "%s: no memory", what);
    return host->fail(host, err, "%s: %s", what, e.what());
}

/* The whole of a regular file; never waits for a FIFO. */
int32_t read_model(const struct bl_host *host, const char *path, std::string *out,
                   struct bl_error *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return host->fail(host, err, "%s: %s", path, strerror(errno));
    int32_t answer = -1;
    if (fstat(fd, &st) != 0)
        host->fail(host, err, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        host->fail(host, err, "%s: not a regular file; a SentencePiece model is one", path);
    else if (st.st_size == 0)
        host->fail(host, err, "%s: the file is empty", path);
    else if (st.st_size > model_limit)
        host->fail(host, err, "%s: %lld bytes are too many for a SentencePiece model", path,
                   (long long)st.st_size);
    else
        answer = 0;
    try {
        if (answer == 0)
            out->resize(size_t(st.st_size));
    } catch (const std::exception &e) {
        answer = fail_reason(host, err, path, e);
    }
    for (size_t at = 0; answer == 0 && at < out->size();) {
        ssize_t got = read(fd, &(*out)[at], out->size() - at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            answer = host->fail(host, err, "%s: reading at byte %zu: %s", path, at,
                                got < 0 ? strerror(errno) : "the file became shorter");
        else
            at += size_t(got);
    }
    close(fd);
    return answer;
}

/* A model is a protobuf message of pieces (field 1), training options (2) and normalization (3), in
 * this order. The library takes one that was cut between two fields, and would then normalize in
 * another way. */
bool is_whole(const std::string &model)
{
    bool seen[8] = {};

    for (size_t at = 0; at < model.size();) {
        unsigned key = (unsigned char)model[at++];
        uint64_t length = 0;
        unsigned shift = 0;
        if ((key & 7) != 2 || (key & 0x80) != 0)
            return false;
        for (bool more = true; more; shift += 7) {
            if (at == model.size() || shift > 28)
                return false;
            unsigned char c = (unsigned char)model[at++];
            length |= uint64_t(c & 0x7f) << shift;
            more = (c & 0x80) != 0;
        }
        if (length > model.size() - at)
            return false;
        at += size_t(length);
        if (key >> 3 < sizeof seen)
            seen[key >> 3] = true;
    }
    return seen[1] && seen[2] && seen[3];
}

int32_t create(const struct bl_host *host, const void *options, void **self, struct bl_error *err)
{
    const char *path = static_cast<const tokenizer_options *>(options)->model;
    tokenizer *t = nullptr;

    if (path[0] == '\0')
        return host->fail(host, err, "model is \"\"; name a .model file of SentencePiece");
    try {
        std::string model;
        if (read_model(host, path, &model, err) != 0)
            return -1;
        t = new tokenizer{host, {}};
        if (is_whole(model) && t->processor.LoadFromSerializedProto(model).ok() &&
            t->processor.GetPieceSize() > 0) {
            *self = t;
            return 0;
        }
        host->fail(host, err,
                   "%s: no SentencePiece model, or not the whole of one (spm_train "
                   "makes them)",
                   path);
    } catch (const std::exception &e) {
        fail_reason(host, err, path, e);
    } catch (...) {
        host->fail(host, err, "%s: the SentencePiece library failed", path);
    }
    delete t;
    return -1;
}

void destroy(void *self)
{
    delete static_cast<tokenizer *>(self);
}

void describe(const void *self, struct bl_tokenizer_info *out)
{
    const tokenizer *t = static_cast<const tokenizer *>(self);

    out->vocab = uint64_t(t->processor.GetPieceSize());
    out->end_of_document = t->processor.eos_id();
}

/* Bytes of the UTF-8 character at `at`; 0: there is none (RFC 3629: shortest form, no surrogates,
 * at most U+10FFFF). */
unsigned character(const unsigned char *at, uint64_t room)
{
    unsigned c = at[0], n = c < 0x80   ? 1
                            : c < 0xc2 ? 0
                            : c < 0xe0 ? 2
                            : c < 0xf0 ? 3
                            : c < 0xf5 ? 4
                                       : 0;

    if (n == 0 || n > room)
        return 0;
    for (unsigned i = 1; i < n; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((c == 0xe0 && at[1] < 0xa0) || (c == 0xed && at[1] > 0x9f) || (c == 0xf0 && at[1] < 0x90) ||
        (c == 0xf4 && at[1] > 0x8f))
        return 0;
    return n;
}

int32_t encode(const void *self, const char *text, uint64_t bytes, int32_t *ids, uint64_t capacity,
               uint64_t *count, struct bl_error *err)
{
    const tokenizer *t = static_cast<const tokenizer *>(self);
    const unsigned char *c = reinterpret_cast<const unsigned char *>(text);

    if (bytes > text_limit)
        return t->host->fail(t->host, err,
                             "a text of %llu bytes; at most %llu can be encoded at once",
                             (unsigned long long)bytes, (unsigned long long)text_limit);
    for (uint64_t i = 0, n; i < bytes; i += n) {
        n = character(c + i, bytes - i);
        if (n == 0)
            return t->host->fail(t->host, err,
                                 "byte %llu (0x%02x) is not UTF-8, which SentencePiece needs; "
                                 "convert the text, with iconv for one, or use tokenizer bytes",
                                 (unsigned long long)i, c[i]);
    }
    try {
        std::vector<int> pieces;
        auto status = t->processor.Encode(std::string_view(text, size_t(bytes)), &pieces);
        if (!status.ok())
            return t->host->fail(t->host, err, "SentencePiece: %s", status.error_message());
        if (pieces.size() <= capacity)
            for (size_t i = 0; i < pieces.size(); i++)
                ids[i] = pieces[i];
        *count = pieces.size();
        return 0;
    } catch (const std::exception &e) {
        return fail_reason(t->host, err, "encoding", e);
    } catch (...) {
        return t->host->fail(t->host, err, "the SentencePiece library failed");
    }
}

int32_t decode(const void *self, const int32_t *ids, uint64_t count, char *text, uint64_t capacity,
               uint64_t *bytes, struct bl_error *err)
{
    const tokenizer *t = static_cast<const tokenizer *>(self);

    for (uint64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= t->processor.GetPieceSize())
            return t->host->fail(t->host, err, "id %d at %llu: the model has ids 0 ... %d",
                                 int(ids[i]), (unsigned long long)i,
                                 t->processor.GetPieceSize() - 1);
    try {
        std::vector<int> pieces(ids, ids + count);
        std::string out;
        auto status = t->processor.Decode(pieces, &out);
        if (!status.ok())
            return t->host->fail(t->host, err, "SentencePiece: %s", status.error_message());
        if (out.size() <= capacity)
            memcpy(text, out.data(), out.size());
        *bytes = out.size();
        return 0;
    } catch (const std::exception &e) {
        return fail_reason(t->host, err, "decoding", e);
    } catch (...) {
        return t->host->fail(t->host, err, "the SentencePiece library failed");
    }
}

const struct bl_option options[] = {{"model", BL_OPTION_STRING, BL_OPTION_REQUIRED, nullptr,
                                     nullptr, "path of a SentencePiece .model file",
                                     offsetof(tokenizer_options, model)},
                                    {nullptr, 0, 0, nullptr, nullptr, nullptr, 0}};

const struct bl_tokenizer_ops ops = {create, destroy, nullptr, nullptr, describe, encode, decode};

} // namespace

BL_PLUGIN(BL_KIND_TOKENIZER, "sentencepiece", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct tokenizer_options), nullptr);
