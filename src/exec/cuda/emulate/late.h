/* Work on streams of the emulated GPU that is done late, as on a GPU: when somebody waits for it, or by chance.
 *
 * Without TG_EMULATED_LATE in the environment everything is done when it is put on a stream. TG_EMULATED_LATE=0: as late as can be, so that
 * whoever reads too early finds what was there before. TG_EMULATED_LATE=N: at times a stream that is drawn goes on for some steps. Streams are
 * told apart by their pointers; NULL is one of them. One thing is done at a time, in one thread or another. */
#ifndef TG_EXEC_CUDA_EMULATE_LATE_H
#define TG_EXEC_CUDA_EMULATE_LATE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Puts work on a stream. `run` is called with `context` once, later or at once; it frees the context. */
void tg_emulated_put(void *stream, void (*run)(void *context), void *context);

/* Whether work may be done later than it is put. Tests may turn that on or off (-1), while nothing is under way. */
int tg_emulated_is_late(void);
void tg_emulated_set_late(int64_t seed);

/* How many steps were put on a stream so far; does them all up to that number; does one that is left; whether that many are done. */
uint64_t tg_emulated_put_n(void *stream);
void tg_emulated_do(void *stream, uint64_t n);
void tg_emulated_do_one(void *stream);
int tg_emulated_is_done(void *stream, uint64_t n);
void tg_emulated_do_all(void);

/* What comes next on a stream waits until `n` steps of another one are done. */
void tg_emulated_follow(void *stream, void *other, uint64_t n);

#ifdef __cplusplus
}
#endif
#endif
