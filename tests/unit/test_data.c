/* Data sets in files: what is read and what is refused. The test writes the files itself. */
#include "support.h"

#include "data.h"
#include "data/file.h"
#include "data/sets.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { PATH_CAP = 512, FILE_CAP = 1 << 16 };

/* ---- a folder of files ------------------------------------------------------------------------------------------ */

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/tersegrad_data_XXXXXX");
    return mkdtemp(folder) == NULL;
}

static void empty_folder(void)
{
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (struct dirent *e = readdir(entries); e != NULL; e = readdir(entries)) {
        char path[PATH_CAP];
        (void)snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        (void)unlink(path); /* fails for "." and "..", and should */
    }
    (void)closedir(entries);
}

static int remove_folder(void **state)
{
    (void)state;
    empty_folder();
    return rmdir(folder);
}

typedef struct content {
    size_t len;
    uint8_t bytes[FILE_CAP];
} content;

static void put_file(const char *name, const content *c, bool is_packed)
{
    char path[PATH_CAP];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    gzFile file = gzopen(path, is_packed ? "wb" : "wbT"); /* T: uncompressed */
    assert_non_null(file);
    assert_true(c->len == 0 || gzwrite(file, c->bytes, (unsigned)c->len) == (int)c->len);
    assert_int_equal(gzclose(file), Z_OK);
}

static content get_file(const char *name)
{
    char path[PATH_CAP];
    static content c;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    c.len = fread(c.bytes, 1, sizeof c.bytes, file);
    (void)fclose(file);
    return c;
}

static const char *spec_of(const char *format)
{
    static char spec[PATH_CAP];
    (void)snprintf(spec, sizeof spec, "%s:%s", format, folder);
    return spec;
}

static tr_data *open_set(const char *spec, const char *remark)
{
    char why[TR_WHY];
    tr_data *d = NULL;
    if (tr_data_open(&d, spec, why) != 0) {
        fail_msg("%s: %s", spec, why);
    }
    if ((remark[0] == '\0') != (why[0] == '\0') || strstr(why, remark) == NULL) {
        fail_msg("%s: the remark is '%s', not '%s'", spec, why, remark);
    }
    return d;
}

static void must_refuse(const char *spec, const char *part, const char *other)
{
    char why[TR_WHY] = "";
    tr_data *d = NULL;
    if (tr_data_open(&d, spec, why) != -1 || strstr(why, part) == NULL || strstr(why, other) == NULL) {
        fail_msg("%s: got '%s', which lacks '%s' or '%s'", spec, why, part, other);
    }
    assert_null(d);
    assert_null(strchr(why, '\n'));
}

static tr_loader *loader_of(const tr_data *d, size_t batch_max)
{
    char why[TR_WHY];
    tr_loader *l = NULL;
    assert_int_equal(tr_loader_new(&l, d, batch_max, why), 0);
    return l;
}

/* ---- small sets --------------------------------------------------------------------------------------------------- */

enum { HEIGHT = 7, WIDTH = 6, IMAGE_LEN = HEIGHT * WIDTH, TRAIN_N = 50, TEST_N = 8, CIFAR_LEN = 3072 };

/* Pixel p of training image i: all images differ, all pixels of an image differ, and none is black. */
static uint8_t pixel_of(size_t image, size_t pixel)
{
    return (uint8_t)(1 + image + 3 * pixel);
}

static void add_number(content *c, uint32_t number)
{
    for (int shift = 24; shift >= 0; shift -= 8) {
        c->bytes[c->len++] = (uint8_t)(number >> shift);
    }
}

static content idx_images(uint32_t n, size_t first)
{
    static content c;
    c.len = 0;
    add_number(&c, 0x803);
    add_number(&c, n);
    add_number(&c, HEIGHT);
    add_number(&c, WIDTH);
    for (size_t i = 0; i < n; i++) {
        for (size_t p = 0; p < IMAGE_LEN; p++) {
            c.bytes[c.len++] = pixel_of(first + i, p);
        }
    }
    return c;
}

static content idx_labels(uint32_t n)
{
    static content c;
    c.len = 0;
    add_number(&c, 0x801);
    add_number(&c, n);
    for (size_t i = 0; i < n; i++) {
        c.bytes[c.len++] = (uint8_t)(i % 10);
    }
    return c;
}

static const char *const idx_names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                        "t10k-labels-idx1-ubyte"};

static content idx_file(size_t which)
{
    uint32_t n = which < 2 ? TRAIN_N : TEST_N;
    return which % 2 == 0 ? idx_images(n, which < 2 ? 0 : TRAIN_N) : idx_labels(n);
}

static void put_idx_set(void)
{
    empty_folder();
    for (size_t i = 0; i < 4; i++) {
        content c = idx_file(i);
        put_file(idx_names[i], &c, i % 3 == 0); /* some are gzipped, without a .gz in their name */
    }
}

/* Records of differently bright channels. */
static content cifar_batch(size_t n, size_t first)
{
    static content c;
    c.len = 0;
    for (size_t i = first; i < first + n; i++) {
        c.bytes[c.len++] = (uint8_t)(i % 10);
        for (size_t p = 0; p < CIFAR_LEN; p++) {
            size_t hash = (p * 2654435761u + i * 40503u) >> 7;
            c.bytes[c.len++] = (uint8_t)(1 + hash % (80 * (p / 1024) + 60));
        }
    }
    return c;
}

static void put_cifar_set(void)
{
    empty_folder();
    content first = cifar_batch(11, 0), third = cifar_batch(6, 11), test = cifar_batch(4, 90);
    put_file("data_batch_1.bin", &first, false);
    put_file("data_batch_3.bin", &third, false);
    put_file("test_batch.bin", &test, false);
}

/* ---- what is read --------------------------------------------------------------------------------------------------- */

static void check_idx_set(const char *spec, bool is_mirrored)
{
    tr_data *d = open_set(spec, "has 50 training and 8 test samples here, and usually 60000 and 10000");
    tr_shape s = tr_data_shape(d);
    assert_true(s.task == TR_IMAGES && s.channels == 1 && s.height == HEIGHT && s.width == WIDTH);
    assert_true(s.classes == 10 && s.sequence == 1 && d->shift_max == 2 && d->is_mirrored == is_mirrored);
    assert_true(tr_data_count(d, TR_TRAIN) == TRAIN_N && tr_data_count(d, TR_TEST) == TEST_N);
    tr_loader *l = loader_of(d, TEST_N);
    tr_batch b = tr_loader_test(l, 2, 100);
    assert_int_equal(b.n, TEST_N - 2);
    double step = 0; /* between neighbouring bytes: always the same */
    for (size_t i = 0; i < b.n; i++) {
        assert_int_equal(b.labels[i], (i + 2) % 10);
        for (size_t p = 1; p < IMAGE_LEN; p++) {
            double apart = (double)pixel_of(TRAIN_N + 2 + i, p) - pixel_of(TRAIN_N + 2 + i, p - 1);
            double by = ((double)b.pixels[i * IMAGE_LEN + p] - (double)b.pixels[i * IMAGE_LEN + p - 1]) / apart;
            step = step > 0 ? step : by;
            assert_true(fabs(by - step) < 1e-5);
        }
    }
    assert_int_equal(tr_loader_test(l, TEST_N, 1).n, 0);
    tr_loader_free(l);
    tr_data_free(d);
}

static void idx_files_are_read_by_any_of_their_names(void **state)
{
    (void)state;
    put_idx_set();
    check_idx_set(spec_of("mnist"), false);
    check_idx_set(spec_of("fashion"), true);
    empty_folder();
    static const char *const others[] = {"train-images.idx3-ubyte", "train-labels.idx1-ubyte.gz",
                                         "t10k-images-idx3-ubyte.gz", "t10k-labels.idx1-ubyte"};
    for (size_t i = 0; i < 4; i++) {
        content c = idx_file(i);
        put_file(others[i], &c, i == 1);
    }
    check_idx_set(spec_of("mnist"), false);
}

static void batches_have_mean_0_and_deviation_1(void **state)
{
    (void)state;
    put_cifar_set();
    tr_data *d = open_set(spec_of("cifar10"), "17 training and 4 test samples here, and usually 50000 and 10000");
    tr_loader *l = loader_of(d, 17);
    tr_batch b = tr_loader_train(l, &(tr_draw){.workers = 1, .batch = 17});
    assert_int_equal(b.n, 17);
    for (size_t c = 0; c < 3; c++) {
        double sum = 0, squares = 0;
        for (size_t i = 0; i < b.n; i++) {
            for (size_t p = 0; p < 1024; p++) {
                double value = (double)b.pixels[i * CIFAR_LEN + c * 1024 + p];
                sum += value;
                squares += value * value;
            }
        }
        assert_true(fabs(sum / (17 * 1024)) < 1e-5 && fabs(squares / (17 * 1024) - 1) < 1e-5);
    }
    tr_shape s = tr_data_shape(d);
    assert_true(s.channels == 3 && s.height == 32 && s.width == 32 && d->shift_max == 4 && d->is_mirrored);
    b = tr_loader_test(l, 0, 4);
    assert_true(b.n == 4 && b.labels[0] == 0 && b.labels[3] == 3);
    tr_loader_free(l);
    tr_data_free(d);
}

static content some_text(size_t len)
{
    static content c;
    test_random random = {3};
    for (c.len = 0; c.len < len; c.len++) {
        c.bytes[c.len] = (uint8_t)("acegiz"[test_bits(&random) % 6]);
    }
    return c;
}

/* The position of 64 symbols in a text. */
static size_t find_window(const content *c, const int32_t *symbols)
{
    for (size_t at = 0; at + 64 <= c->len; at++) {
        size_t same = 0;
        while (same < 64 && "acegiz"[symbols[same]] == c->bytes[at + same]) {
            same++;
        }
        if (same == 64) {
            return at;
        }
    }
    fail_msg("a window is not from the text");
    return 0;
}

static void text_is_cut_into_windows(void **state)
{
    (void)state;
    enum { LEN = 6400, WINDOWS = (LEN - LEN / 10 - 1 - 64) / 64 };
    empty_folder();
    content c = some_text(LEN);
    put_file("some.txt", &c, false);
    char spec[PATH_CAP];
    (void)snprintf(spec, sizeof spec, "text:%s/some.txt", folder);
    tr_data *d = open_set(spec, "");
    tr_shape s = tr_data_shape(d);
    assert_true(s.task == TR_TEXT && s.sequence == 64 && s.classes == 6 && s.channels == 0);
    assert_true(tr_data_count(d, TR_TRAIN) == WINDOWS && tr_data_count(d, TR_TEST) == 10);
    tr_loader *l = loader_of(d, WINDOWS);
    tr_batch b = tr_loader_test(l, 3, 2);
    for (size_t i = 0; i < 2 * 64; i++) {
        size_t at = LEN - LEN / 10 - 1 + 3 * 64 + i;
        assert_int_equal("acegiz"[b.symbols[i]], c.bytes[at]);
        assert_int_equal("acegiz"[b.labels[i]], c.bytes[at + 1]);
    }
    /* Windows are in the training part, a multiple of 64 after an offset that differs between epochs. */
    uint64_t offsets = 0;
    for (uint64_t epoch = 0; epoch < 20; epoch++) {
        bool drawn[LEN] = {false};
        b = tr_loader_train(l, &(tr_draw){.seed = 5, .step = epoch, .workers = 1, .batch = WINDOWS});
        size_t offset = find_window(&c, b.symbols) % 64;
        for (size_t i = 0; i < b.n; i++) {
            size_t at = find_window(&c, b.symbols + i * 64);
            assert_true(at % 64 == offset && at + 64 < LEN - LEN / 10 - 1 && !drawn[at]);
            assert_int_equal(find_window(&c, b.labels + i * 64), at + 1);
            drawn[at] = true;
        }
        offsets |= UINT64_C(1) << offset;
    }
    assert_true(__builtin_popcountll(offsets) > 10);
    tr_loader_free(l);
    tr_data_free(d);
}

/* ---- what is refused ------------------------------------------------------------------------------------------------ */

static void damaged_idx_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t file, at;
        int value, length; /* the byte at `at`, and bytes more or fewer */
        const char *part;
    } damages[] = {
        {0, 0, 1, 0, "it is not an idx file"},
        {0, 3, 1, 0, "announce type 8 in 1 dimensions, but images are type 8 in 3"},
        {1, 3, 3, 0, "but labels are type 8 in 1"},
        {2, 2, 9, 0, "announce type 9"},
        {2, 7, 0, 0, "nothing at all"},
        {2, 4, 255, 0, "but at most"},
        {2, 10, 2, 0, "but at most"},
        {2, 0, 0, -1, "announces 336 bytes, but only 335 follow it"},
        {3, 0, 0, 1, "announces 8 bytes, but as many as 9 follow it"},
        {3, 0, 0, -10, "it is cut off within its header"},
        {3, 0, 0, -14, "it is not an idx file"},
        {1, 10, 10, 0, "label 2 is 10, but classes go from 0 to 9"},
    };
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        put_idx_set();
        content c = idx_file(damages[i].file);
        c.bytes[damages[i].at] = (uint8_t)damages[i].value;
        c.len += (size_t)damages[i].length;
        put_file(idx_names[damages[i].file], &c, i % 2);
        must_refuse(spec_of("mnist"), damages[i].part, idx_names[damages[i].file]);
    }
    put_idx_set();
    content other = idx_labels(TEST_N - 1);
    put_file(idx_names[3], &other, false);
    must_refuse(spec_of("mnist"), "8 images, 7 labels", "t10k");
    put_idx_set();
    other = idx_images(TEST_N, 0);
    other.bytes[11] = WIDTH;
    other.bytes[15] = HEIGHT;
    put_file(idx_names[2], &other, false);
    must_refuse(spec_of("mnist"), "training images are 7 x 6, test images 6 x 7", folder);
}

static void damaged_gzip_is_refused(void **state)
{
    (void)state;
    put_idx_set();
    content packed = get_file(idx_names[0]), c = packed;
    for (size_t len = 2; len < packed.len; len += 7) {
        c.len = len;
        put_file(idx_names[0], &c, false);
        must_refuse(spec_of("mnist"), "cut off within its packed data", idx_names[0]);
    }
    c = packed;
    c.len += 2; /* zeros after it */
    put_file(idx_names[0], &c, false);
    must_refuse(spec_of("mnist"), "something else follows", idx_names[0]);
    c = packed;
    c.bytes[c.len - 6] ^= 1; /* in the checksum */
    put_file(idx_names[0], &c, false);
    must_refuse(spec_of("mnist"), "is damaged", idx_names[0]);
    /* Two streams are one file, here twice as long as announced. */
    c = packed;
    memcpy(c.bytes + c.len, packed.bytes, packed.len);
    c.len *= 2;
    put_file(idx_names[0], &c, false);
    must_refuse(spec_of("mnist"), "announces 2100 bytes, but as many as 4216 follow", idx_names[0]);
}

static void damaged_cifar_files_are_refused(void **state)
{
    (void)state;
    put_cifar_set();
    content c = cifar_batch(3, 0);
    c.len--;
    put_file("data_batch_2.bin", &c, false);
    must_refuse(spec_of("cifar10"), "its 9218 bytes end within a record", "data_batch_2.bin");
    c.len = 0;
    put_file("data_batch_2.bin", &c, false);
    must_refuse(spec_of("cifar10"), "it is empty", "data_batch_2.bin");
    put_cifar_set();
    c = cifar_batch(3, 0);
    c.bytes[3073] = 10;
    put_file("test_batch.bin", &c, false);
    must_refuse(spec_of("cifar10"), "the label of record 1 is 10", "test_batch.bin");
    empty_folder();
    must_refuse(spec_of("cifar10"), "there is no data_batch_1.bin", "www.cs.toronto.edu");
    put_file("data_batch_4.bin", (c = cifar_batch(3, 0), &c), false);
    must_refuse(spec_of("cifar10"), "there is no test_batch.bin", folder);
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    static const char advice[] = "apt-get install dataset-fashion-mnist', or give its folder as 'fashion:DIR', or use "
                                 "'glyphs', which needs no files";
    empty_folder();
    must_refuse(spec_of("fashion"), "there is no train-images-idx3-ubyte", advice);
    must_refuse(spec_of("mnist"), "there is no train-images-idx3-ubyte", "mnist:DIR");
    put_idx_set();
    char path[PATH_CAP];
    (void)snprintf(path, sizeof path, "%s/%s", folder, idx_names[3]);
    assert_int_equal(unlink(path), 0);
    must_refuse(spec_of("fashion"), "there is no t10k-labels-idx1-ubyte", folder);
    must_refuse("text:/nowhere/at/all", "'/nowhere/at/all' can not be opened", "No such file");
    must_refuse(spec_of("text"), "not an ordinary file", folder);
    must_refuse("mnist", "does not say where", "mnist:DIR");
    must_refuse("cifar10", "does not say where", "cifar10:DIR");
    must_refuse("text", "does not say which file", "text:FILE");
    must_refuse("text:", "nothing behind its colon", "text:");
    must_refuse("glyphs:here", "takes no folder", "glyphs");
    must_refuse("imagenet", "'imagenet' is no data set", "'cifar10:DIR'");
    must_refuse("", "'' is no data set", "'glyphs'");

    content c = some_text(639);
    put_file("short.txt", &c, false);
    (void)snprintf(path, sizeof path, "text:%s/short.txt", folder);
    must_refuse(path, "it has 639 bytes, and 10 sequences have 640", "short.txt");
    c = some_text(640);
    put_file("short.txt", &c, false);
    tr_data *d = open_set(path, "");
    assert_true(tr_data_count(d, TR_TRAIN) == 7 && tr_data_count(d, TR_TEST) == 1);
    tr_data_free(d);
    memset(c.bytes, 'a', c.len);
    put_file("short.txt", &c, false);
    must_refuse(path, "all its bytes are alike", "short.txt");
    tr_data_free(NULL);
    tr_loader_free(NULL);
}

/* ---- what comes with Debian ------------------------------------------------------------------------------------------- */

static void the_package_of_debian_is_read(void **state)
{
    (void)state;
    if (!tr_file_exists("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")) {
        print_message("skipped: the package dataset-fashion-mnist is not installed\n");
        skip();
    }
    tr_data *d = open_set("fashion", "");
    assert_string_equal(tr_data_name(d), "fashion");
    assert_true(tr_data_count(d, TR_TRAIN) == 60000 && tr_data_count(d, TR_TEST) == 10000);
    tr_loader *l = loader_of(d, 10);
    tr_batch b = tr_loader_test(l, 0, 10);
    static const int32_t labels[] = {9, 2, 1, 1, 6, 1, 4, 6, 5, 7};
    assert_memory_equal(b.labels, labels, sizeof labels);
    tr_loader_free(l);
    tr_data_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idx_files_are_read_by_any_of_their_names),
        cmocka_unit_test(batches_have_mean_0_and_deviation_1),
        cmocka_unit_test(text_is_cut_into_windows),
        cmocka_unit_test(damaged_idx_files_are_refused),
        cmocka_unit_test(damaged_gzip_is_refused),
        cmocka_unit_test(damaged_cifar_files_are_refused),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(the_package_of_debian_is_read),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
