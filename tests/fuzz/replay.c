/* Runs a fuzz target over a folder of inputs, and over beginnings of each of them: what a cut file
 * gives. No fuzzing, so any compiler will do. replay [FOLDER] */
#include <dirent.h>

#include "target.h"

enum { CUTS = 128, BYTES = 1 << 16 };

static int replay(const char *path)
{
    static uint8_t buffer[BYTES];
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(buffer, 1, sizeof(buffer), f) : 0;

    if (!f || ferror(f)) {
        perror(path);
        if (f)
            fclose(f);
        return -1;
    }
    fclose(f);
    for (size_t cut = 0; cut < n; cut += n / CUTS + 1) {
        uint8_t *exact = malloc(cut ? cut : 1); /* a sanitizer sees a read beyond */
        FUZZ_REQUIRE(exact != NULL);
        memcpy(exact, buffer, cut);
        LLVMFuzzerTestOneInput(exact, cut);
        free(exact);
    }
    LLVMFuzzerTestOneInput(buffer, n);
    return 0;
}

int main(int argc, char **argv)
{
    const char *source = getenv("top_srcdir");
    char folder[4096], path[8192];
    struct dirent *entry;
    int files = 0, failed = 0;

    snprintf(folder, sizeof(folder), "%s/tests/fuzz/corpus/%s", source ? source : ".", FUZZ_NAME);
    if (argc > 1)
        snprintf(folder, sizeof(folder), "%s", argv[1]);
    DIR *d = opendir(folder);
    if (!d) {
        perror(folder);
        return 1;
    }
    while ((entry = readdir(d)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        printf("%s\n", path);
        fflush(stdout); /* the last name is the one that crashed */
        failed |= replay(path);
        files++;
    }
    closedir(d);
    printf("%d inputs\n", files);
    return failed || files == 0;
}
