/* The hash of a data set: any byte that a run uses changes it; compression of its files does not. */
#include "support.h"

#include "data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { PATH_CAP = 512, FILE_N_MAX = 4, FILE_CAP = 3 * 3073 };

typedef struct file {
    const char *name;
    tr_split split;
    size_t header_len; /* bytes before the content */
    size_t len;
    uint8_t bytes[FILE_CAP];
} file;

typedef struct set {
    char spec[PATH_CAP];
    file files[FILE_N_MAX];
    size_t file_n;
} set;

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/tersegrad_hash_XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static void put_file(const file *f, bool is_packed)
{
    char path[PATH_CAP];
    (void)snprintf(path, sizeof path, "%s/%s%s", folder, f->name, is_packed ? ".gz" : "");
    gzFile to = gzopen(path, is_packed ? "wb" : "wbT"); /* T: uncompressed */
    assert_non_null(to);
    assert_int_equal(gzwrite(to, f->bytes, (unsigned)f->len), (int)f->len);
    assert_int_equal(gzclose(to), Z_OK);
}

static void remove_file(const file *f, bool is_packed)
{
    char path[PATH_CAP];
    (void)snprintf(path, sizeof path, "%s/%s%s", folder, f->name, is_packed ? ".gz" : "");
    assert_int_equal(unlink(path), 0);
}

typedef struct hashes {
    uint64_t of[2]; /* by split */
} hashes;

static hashes open_and_hash(const char *spec)
{
    char why[TR_WHY];
    tr_data *d = NULL;
    if (tr_data_open(&d, spec, why) != 0) {
        fail_msg("%s: %s", spec, why);
    }
    hashes h = {{tr_data_hash(d, TR_TRAIN), tr_data_hash(d, TR_TEST)}};
    tr_data_free(d);
    return h;
}

static file *add_file(set *s, const char *name, tr_split split, const uint8_t *header, size_t header_len, size_t len)
{
    file *f = &s->files[s->file_n++];
    *f = (file){.name = name, .split = split, .header_len = header_len, .len = header_len + len};
    if (header_len > 0) {
        memcpy(f->bytes, header, header_len);
    }
    for (size_t i = 0; i < len; i++) {
        f->bytes[header_len + i] = (uint8_t)(i % 8); /* small enough for a label, too */
    }
    return f;
}

static set idx_set(const char *kind)
{
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 3},
                         labels[] = {0, 0, 8, 1, 0, 0, 0, 5};
    set s = {.file_n = 0};
    (void)snprintf(s.spec, sizeof s.spec, "%s:%s", kind, folder);
    (void)add_file(&s, "train-images-idx3-ubyte", TR_TRAIN, images, sizeof images, 60);
    (void)add_file(&s, "train-labels-idx1-ubyte", TR_TRAIN, labels, sizeof labels, 5);
    (void)add_file(&s, "t10k-images-idx3-ubyte", TR_TEST, images, sizeof images, 60);
    (void)add_file(&s, "t10k-labels-idx1-ubyte", TR_TEST, labels, sizeof labels, 5);
    return s;
}

static set cifar_set(void)
{
    set s = {.file_n = 0};
    (void)snprintf(s.spec, sizeof s.spec, "cifar10:%s", folder);
    (void)add_file(&s, "data_batch_1.bin", TR_TRAIN, NULL, 0, 3 * 3073);
    (void)add_file(&s, "data_batch_4.bin", TR_TRAIN, NULL, 0, 3073);
    (void)add_file(&s, "test_batch.bin", TR_TEST, NULL, 0, 2 * 3073);
    return s;
}

/* Flips the lowest bit of some bytes of each file, the first and the last among them, one at a time. */
static void any_byte_counts(set *s)
{
    enum { POSITIONS = 20 };
    for (size_t i = 0; i < s->file_n; i++) {
        put_file(&s->files[i], false);
    }
    hashes whole = open_and_hash(s->spec);
    for (size_t i = 0; i < s->file_n; i++) {
        file *f = &s->files[i];
        for (size_t k = 0; k <= POSITIONS; k++) {
            size_t at = f->header_len + (f->len - f->header_len - 1) * k / POSITIONS;
            f->bytes[at] ^= 1;
            put_file(f, false);
            hashes h = open_and_hash(s->spec);
            assert_true(h.of[f->split] != whole.of[f->split]);
            assert_true(h.of[!f->split] == whole.of[!f->split]);
            f->bytes[at] ^= 1;
        }
        put_file(f, false);
    }
    hashes again = open_and_hash(s->spec);
    assert_memory_equal(&again, &whole, sizeof whole);
    for (size_t i = 0; i < s->file_n; i++) {
        remove_file(&s->files[i], false);
    }
}

static void any_byte_of_images_and_labels_counts(void **state)
{
    (void)state;
    set mnist = idx_set("mnist"), fashion = idx_set("fashion"), cifar = cifar_set();
    any_byte_counts(&mnist);
    any_byte_counts(&fashion);
    any_byte_counts(&cifar);
}

static void the_same_pixels_in_another_shape_differ(void **state)
{
    (void)state;
    set s = idx_set("mnist");
    hashes seen[2];
    for (int turned = 0; turned < 2; turned++) {
        for (size_t i = 0; i < s.file_n; i++) {
            if (s.files[i].header_len == 16) {
                s.files[i].bytes[11] = turned ? 3 : 4;
                s.files[i].bytes[15] = turned ? 4 : 3;
            }
            put_file(&s.files[i], false);
        }
        seen[turned] = open_and_hash(s.spec);
    }
    assert_true(seen[0].of[TR_TRAIN] != seen[1].of[TR_TRAIN] && seen[0].of[TR_TEST] != seen[1].of[TR_TEST]);
    for (size_t i = 0; i < s.file_n; i++) {
        remove_file(&s.files[i], false);
    }
}

static void packed_and_plain_files_have_one_hash(void **state)
{
    (void)state;
    set s = idx_set("mnist");
    hashes seen[2];
    for (int packed = 0; packed < 2; packed++) {
        for (size_t i = 0; i < s.file_n; i++) {
            put_file(&s.files[i], packed);
        }
        seen[packed] = open_and_hash(s.spec);
        for (size_t i = 0; i < s.file_n; i++) {
            remove_file(&s.files[i], packed);
        }
    }
    assert_memory_equal(&seen[0], &seen[1], sizeof seen[0]);
}

/* A text of which each byte is one higher has the same symbol numbers; it is another text all the same. */
static void any_byte_of_a_text_counts(void **state)
{
    (void)state;
    set s = {.file_n = 0};
    (void)snprintf(s.spec, sizeof s.spec, "text:%s/some.txt", folder);
    file *f = add_file(&s, "some.txt", TR_TRAIN, NULL, 0, 2000);
    put_file(f, false);
    hashes whole = open_and_hash(s.spec);
    for (size_t at = 0; at < f->len; at += at < 1700 ? 100 : 13) {
        f->bytes[at] ^= 1;
        put_file(f, false);
        hashes h = open_and_hash(s.spec);
        int split = at >= f->len - (f->len / 10 + 1) ? TR_TEST : TR_TRAIN;
        assert_true(h.of[split] != whole.of[split] && h.of[!split] == whole.of[!split]);
        f->bytes[at] ^= 1;
    }
    for (size_t i = 0; i < f->len; i++) {
        f->bytes[i]++;
    }
    put_file(f, false);
    hashes shifted = open_and_hash(s.spec);
    assert_true(shifted.of[TR_TRAIN] != whole.of[TR_TRAIN] && shifted.of[TR_TEST] != whole.of[TR_TEST]);
    remove_file(f, false);
}

static void glyphs_are_the_same_every_time(void **state)
{
    (void)state;
    hashes first = open_and_hash("glyphs"), again = open_and_hash("glyphs");
    assert_memory_equal(&first, &again, sizeof first);
    assert_true(first.of[TR_TRAIN] != 0 && first.of[TR_TRAIN] != first.of[TR_TEST]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_byte_of_images_and_labels_counts),
        cmocka_unit_test(the_same_pixels_in_another_shape_differ),
        cmocka_unit_test(packed_and_plain_files_have_one_hash),
        cmocka_unit_test(any_byte_of_a_text_counts),
        cmocka_unit_test(glyphs_are_the_same_every_time),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
