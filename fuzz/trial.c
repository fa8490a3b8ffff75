/* Runs a trial target without a fuzzer: trial_NAME COUNT [SEED [FIRST]] runs COUNT inputs, numbered from FIRST. Each is a string of
 * random decisions, a pure function of seed and number. If a broken promise, a sanitizer or a timeout ends the program, it prints the
 * seed and the number of the input. */
#include "trial.h"

#include "check.h"

#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { DECISIONS = 160, PATIENCE_S = 60 };

static const char *name;
static uint64_t seed, number;

/* Provided by sanitizers: registers a callback for the end of the program. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static size_t put_number(char *out, uint64_t value)
{
    char digits[20];
    size_t n = 0, len = 0;
    do {
        digits[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (n > 0) {
        out[len++] = digits[--n];
    }
    return len;
}

/* Called from a signal handler: only `write` is allowed. */
static void tell_input(void)
{
    char line[256];
    size_t len = strlen(name) < 128 ? strlen(name) : 128;
    static const char said[] = "to see it again: ", once[] = " 1 ";
    char *at = line;
    memcpy(at, said, sizeof said - 1);
    at += sizeof said - 1;
    memcpy(at, name, len);
    at += len;
    memcpy(at, once, sizeof once - 1);
    at += sizeof once - 1;
    at += put_number(at, seed);
    *at++ = ' ';
    at += put_number(at, number);
    *at++ = '\n';
    (void)!write(STDERR_FILENO, line, (size_t)(at - line));
}

static void end(int signal_number)
{
    static const char late[] = "an input takes too long\n";
    if (signal_number == SIGALRM) {
        (void)!write(STDERR_FILENO, late, sizeof late - 1);
    }
    tell_input();
    _exit(1);
}

static uint64_t mix(uint64_t z) /* splitmix64 */
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void run(void)
{
    uint8_t *decisions = malloc(DECISIONS); /* so that a sanitizer detects any access past its end */
    PROMISE(decisions != NULL, "the machine has memory for a small input");
    uint64_t state = mix(seed) ^ mix(number + 0x9e3779b97f4a7c15u);
    for (size_t i = 0; i < DECISIONS; i += 8) {
        uint64_t word = mix(state += 0x9e3779b97f4a7c15u);
        memcpy(decisions + i, &word, 8);
    }
    (void)LLVMFuzzerTestOneInput(decisions, DECISIONS);
    free(decisions);
}

int main(int argument_n, char **arguments)
{
    if (argument_n < 2) {
        (void)fprintf(stderr, "usage: %s COUNT [SEED [FIRST]]\n", arguments[0]);
        return 2;
    }
    name = arguments[0];
    uint64_t count = strtoull(arguments[1], NULL, 10), first = argument_n > 3 ? strtoull(arguments[3], NULL, 10) : 0;
    seed = argument_n > 2 ? strtoull(arguments[2], NULL, 10) : 1;
    (void)signal(SIGABRT, end);
    (void)signal(SIGALRM, end);
    if (__sanitizer_set_death_callback != NULL) {
        __sanitizer_set_death_callback(tell_input);
    }
    (void)printf("seed %" PRIu64 ", inputs %" PRIu64 " to %" PRIu64 "\n", seed, first, first + count - 1);
    (void)fflush(stdout);
    for (number = first; number < first + count; number++) {
        (void)alarm(PATIENCE_S);
        run();
    }
    (void)alarm(0);
    (void)printf("%" PRIu64 " inputs: %" PRIu64 " accepted, %" PRIu64 " refused\n", count, fuzz_accepted_n,
                 fuzz_refused_n);
    bool is_large = count >= 1000; /* enough for both to occur */
    PROMISE(!is_large || (fuzz_accepted_n >= count / 50 && fuzz_refused_n >= count / 50),
            "a trial has inputs of both kinds, at least one in fifty");
    return 0;
}
