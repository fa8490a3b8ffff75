/* Many commands of the program in one process, because starting one with a GPU takes half a second. Each line of standard input is a
 * command: its words with bytes 2 between them. After what it prints, errors too, there is a line: a byte 1, then its status. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int tersegrad_main(int argc, char **argv); /* main of the program */

int main(void)
{
    enum { LINE_CAP = 1 << 16, WORD_CAP = 256 };
    static char line[LINE_CAP];
    static char program[] = "tersegrad";
    if (dup2(STDOUT_FILENO, STDERR_FILENO) < 0) {
        return 1;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *words[WORD_CAP] = {program};
        int n = 1;
        line[strcspn(line, "\n")] = '\0';
        for (char *word = strtok(line, "\002"); word != NULL && n < WORD_CAP - 1; word = strtok(NULL, "\002")) {
            words[n++] = word;
        }
        int status = tersegrad_main(n, words);
        printf("\001%d\n", status);
        fflush(stdout);
    }
    return 0;
}
