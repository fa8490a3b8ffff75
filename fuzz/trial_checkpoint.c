/* Checkpoints of the trainer with structure-aware damage and a repaired checksum. The input is a list of decisions: see mutate.h.
 *
 * What must hold: a checkpoint is refused with an error, or the run can be saved and loaded again. After any refusal, the original
 * checkpoint still loads and is saved again to the same bytes. */
#include "hash.h"
#include "mutate.h"
#include "team.h"
#include "trial.h"

#include <string.h>

uint64_t fuzz_accepted_n, fuzz_refused_n;

enum { CHECKSUM_LEN = 8, WORKERS = 2 };

/* ---- one run and its checkpoint ---------------------------------------------------------------------------------------- */

static const tr_settings settings = {.model = "resnet8",
                                     .recipe = "ef+topk@0.01",
                                     .workers = WORKERS,
                                     .batch = 2,
                                     .steps = 10,
                                     .seed = 3,
                                     .optimizer = {.rule = TR_SGD, .rate = 0.1, .momentum = 0.9}};

static tr_team team;

/* The checkpoint; free it. */
static uint8_t *save(size_t *len)
{
    char why[TR_WHY] = "";
    for (uint32_t r = 0; r < WORKERS; r++) {
        PROMISE(tr_saved_worker(&team.workers[r], why) == 0, "a worker can be saved");
        team.parts[r] = (tg_span){team.workers[r].saved, team.workers[r].saved_len};
    }
    *len = tr_saved_len(&team);
    uint8_t *bytes = fuzz_room(*len, 0);
    tr_saved_write(bytes, *len, &team);
    return bytes;
}

static const uint8_t *sound_run(size_t *len)
{
    static uint8_t *bytes;
    static size_t bytes_len;
    if (bytes == NULL) {
        char why[TR_WHY] = "";
        tr_data *data = NULL;
        PROMISE(tr_data_open(&data, "glyphs", why) == 0, "the data that needs no file can be opened");
        team = (tr_team){.settings = &settings, .data = data};
        tr_gate_init(&team.gate, WORKERS);
        PROMISE(tr_team_gather(&team, why) == 0, "there is memory for a small team");
        bytes = save(&bytes_len);
    }
    *len = bytes_len;
    return bytes;
}

/* ---- layout: all knowledge of it that this file has --------------------------------------------------------------------- */

static void seal(uint8_t *bytes, size_t len)
{
    if (len >= CHECKSUM_LEN) {
        fuzz_put_number(bytes + len - CHECKSUM_LEN, CHECKSUM_LEN, tr_hash(0, bytes, len - CHECKSUM_LEN));
    }
}

/* A length of eight bytes, then the array. */
static size_t cut_array(fuzz_mutant *m, size_t at, fuzz_kind kind)
{
    size_t len = (size_t)fuzz_get_number(m->bytes + at, 8);
    at = fuzz_mutant_add(m, FUZZ_NUMBER, 0, 0, at, 8);
    return fuzz_mutant_add(m, kind, 0, 0, at, len);
}

static void cut(fuzz_mutant *m)
{
    size_t weight_n = 0, moment_n = 0, tail = 0, end = m->len - CHECKSUM_LEN;
    (void)tr_model_weights(team.workers[0].model, &weight_n);
    (void)tr_optimizer_state(team.workers[0].optimizer, &moment_n);
    tail = 8 + 4 * weight_n + 8 + 4 * moment_n; /* weights, moments, and the parts of workers are the last */
    for (uint32_t r = 0; r < WORKERS; r++) {
        tail += team.workers[r].saved_len;
    }
    size_t at = fuzz_mutant_add(m, FUZZ_NUMBER, 0, 0, 0, 4); /* magic */
    at = fuzz_mutant_add(m, FUZZ_NUMBER, 0, 0, at, 4);       /* version */
    at = cut_array(m, at, FUZZ_BYTES);                       /* settings */
    at = fuzz_mutant_add(m, FUZZ_NUMBER, 0, 0, at, 8);       /* steps done */
    at = fuzz_mutant_add(m, FUZZ_BYTES, 0, 0, at, end - tail - at);
    at = cut_array(m, at, FUZZ_FLOATS);
    at = cut_array(m, at, FUZZ_FLOATS);
    for (uint32_t r = 0; r < WORKERS; r++) {
        at = cut_array(m, at, FUZZ_FLOATS); /* running statistics */
        at = cut_array(m, at, FUZZ_BYTES);  /* state of the exchange */
    }
    PROMISE(at == end, "the fields of a saved run are all of it");
}

/* The number of workers that the settings name, which tells how many parts follow. */
static void damage_workers(fuzz_input *input, uint8_t *text, size_t len)
{
    static const char name[] = "\nworkers ";
    for (size_t i = 0; i + sizeof name < len; i++) {
        if (memcmp(text + i, name, sizeof name - 1) == 0) {
            text[i + sizeof name - 1] = (uint8_t)('0' + fuzz_pick(input, 12)); /* beyond 9: no digit */
        }
    }
}

/* ---- the trial ----------------------------------------------------------------------------------------------------------- */

static void check_accepted(void)
{
    char why[TR_WHY] = "";
    uint64_t steps = 0;
    size_t len = 0;
    uint8_t *again = save(&len);
    PROMISE(tr_saved_read(&team, again, len, why) == 0, "what was saved behind a load can be loaded");
    PROMISE(tr_saved_steps(&steps, &settings, team.data, again, len, why) == 0 && steps == team.done,
            "a saved run tells how many steps it stands for");
    free(again);
}

static void check_sound(void)
{
    char why[TR_WHY] = "";
    size_t sound_len = 0, len = 0;
    const uint8_t *sound = sound_run(&sound_len);
    PROMISE(tr_saved_read(&team, sound, sound_len, why) == 0, "a run that was saved can be read");
    uint8_t *again = save(&len);
    PROMISE(len == sound_len && memcmp(again, sound, len) == 0, "a run that was read is saved to the same bytes");
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    fuzz_input input = {data, len};
    size_t sound_len = 0;
    const uint8_t *sound = sound_run(&sound_len);
    fuzz_mutant m;
    fuzz_mutant_start(&m, sound, sound_len);
    cut(&m);
    for (uint32_t i = fuzz_pick(&input, 3); i > 0; i--) {
        fuzz_damage_field(&input, &m, fuzz_pick(&input, (uint32_t)m.field_n), sound, 4096);
    }
    if (fuzz_once_in(&input, 8)) {
        damage_workers(&input, m.bytes + m.fields[3].at, m.fields[3].len);
    }
    if (fuzz_once_in(&input, 8)) {
        m.len -= fuzz_once_in(&input, 2) ? fuzz_pick(&input, 100) : fuzz_pick(&input, (uint32_t)m.len);
    }
    uint8_t *bytes = fuzz_room(m.len, 0);
    memcpy(bytes, m.bytes, m.len);
    seal(bytes, m.len);
    char why[TR_WHY];
    memset(why, 'x', sizeof why);
    if (tr_saved_read(&team, bytes, m.len, why) == 0) {
        fuzz_accepted_n++;
        check_accepted();
    } else {
        fuzz_refused_n++;
        fuzz_check_sentence(why, sizeof why);
    }
    if (fuzz_once_in(&input, 4)) {
        check_sound();
    }
    free(bytes);
    fuzz_mutant_free(&m);
    return 0;
}
