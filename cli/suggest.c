/* Suggestions by edit distance; see suggest.h. */
#include "suggest.h"

#include <stdio.h>
#include <string.h>

#include "tersegrad/tersegrad.h"

enum { WORD_MAX = 40 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, replacements and swaps of neighbours that make `a` from `b` (optimal string alignment). */
static size_t distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t rows[3][WORD_MAX + 1], *two = rows[0], *one = rows[1], *now = rows[2];
    for (size_t j = 0; j <= b_len; j++) {
        one[j] = j;
        two[j] = j;
    }
    for (size_t i = 1; i <= a_len; i++) {
        now[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t changed = one[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = least(changed, least(one[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                now[j] = least(now[j], two[j - 2] + 1);
            }
        }
        size_t *free_row = two;
        two = one;
        one = now;
        now = free_row;
    }
    return one[b_len];
}

/* Near enough is a third of the word's letters, at least one and at most three; or a name that the word begins. */
void cli_suggest_offer(cli_suggest *s, const char *name, size_t name_len)
{
    size_t limit = least(3, s->len < 6 ? 1 + (s->len > 3) : s->len / 3);
    if (s->len == 0 || s->len > WORD_MAX || name_len > WORD_MAX) {
        return;
    }
    size_t apart = distance(s->word, s->len, name, name_len);
    if (apart > limit && s->len >= 3 && s->len < name_len && memcmp(s->word, name, s->len) == 0) {
        apart = limit;
    }
    if (apart <= limit && (s->best == NULL || apart < s->distance)) {
        s->best = name;
        s->best_len = name_len;
        s->distance = apart;
    }
}

const char *cli_suggest_text(char out[CLI_SUGGEST_CAP], const cli_suggest *s)
{
    out[0] = '\0';
    if (s->best != NULL && s->distance > 0) {
        snprintf(out, CLI_SUGGEST_CAP, "; did you mean '%.*s'?", (int)s->best_len, s->best);
    }
    return out;
}

const char *cli_suggest_from(char out[CLI_SUGGEST_CAP], const char *word, size_t len, const char *const *names)
{
    cli_suggest s = {.word = word, .len = len};
    for (size_t i = 0; names[i] != NULL; i++) {
        cli_suggest_offer(&s, names[i], strlen(names[i]));
    }
    return cli_suggest_text(out, &s);
}

const char *cli_suggest_part(char out[CLI_SUGGEST_CAP], const char *sentence)
{
    static const char lead[] = "there is no part or preset '";
    const char *at = strstr(sentence, lead);
    cli_suggest s = {.word = at != NULL ? at + strlen(lead) : ""};
    tg_part_info part;
    s.len = strcspn(s.word, "'");
    for (size_t i = 0; tg_part_list(&part, i, NULL) == TG_OK; i++) {
        cli_suggest_offer(&s, part.name, strlen(part.name));
    }
    return cli_suggest_text(out, &s);
}
