/* Blocks of the emulated GPU that wait for each other: they run in turns, and a wait that can never end ends the program. */
#include "exec/cuda/emulate/calls.h"
#include "support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 64 };

typedef struct meeting {
    unsigned blocks, each;     /* blocks of the launch, and of a group that waits for all of its own */
    volatile unsigned begun;   /* threads */
    volatile unsigned come[8]; /* of a group */
    unsigned left;
} meeting;

/* A thread waits until all threads of its group of blocks have come. */
static void meet(void *context)
{
    meeting *m = context;
    unsigned group = m->begun++ / (THREADS * m->each);
    m->come[group]++;
    while (m->come[group] < THREADS * m->each) {
        tg_emulated_let_others();
    }
    tg_emulated_went_on();
    m->left++;
}

static void blocks_of_a_group_meet(void **state)
{
    (void)state;
    for (unsigned each = 1; each <= 8; each++) {
        meeting m = {.blocks = 3 * each, .each = each};
        tg_emulated_launch_together(m.blocks, THREADS, 0, meet, &m);
        assert_int_equal(m.left, m.blocks * THREADS);
    }
}

/* What a process prints on its standard error before it is aborted. */
static void expect_abort(const char *sentence, meeting m)
{
    int ends[2];
    char told[512] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        tg_emulated_launch_together(m.blocks, THREADS, 0, meet, &m);
        _exit(0);
    }
    close(ends[1]);
    size_t len = 0;
    for (ssize_t n = 1; n > 0 && len<sizeof told - 1; len += n> 0 ? (size_t)n : 0) {
        n = read(ends[0], told + len, sizeof told - 1 - len);
    }
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(told, sentence));
}

static void a_wait_that_cannot_end_is_an_error(void **state)
{
    (void)state;
    expect_abort("waits for what no block does", (meeting){.blocks = 3, .each = 4});
    expect_abort("waits, as too many other blocks do", (meeting){.blocks = 100, .each = 100});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_a_group_meet),
        cmocka_unit_test(a_wait_that_cannot_end_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
