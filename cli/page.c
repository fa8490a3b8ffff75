/* Pages from the program's own bytes; see page.h. */
#include "page.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "file.h"
#include "page_bytes.h"

static const unsigned char *const pages[] = {
    [CLI_PAGE_COMPARE] = compare_bytes,
    [CLI_PAGE_QUALITY] = quality_bytes,
    [CLI_PAGE_SIMILARITY] = similarity_bytes,
    [CLI_PAGE_PLAN] = plan_bytes,
};

int cli_page_open(cli_page *out, cli_page_kind kind)
{
    *out = (cli_page){.kind = kind};
    out->data = open_memstream(&out->json, &out->json_len);
    return out->data != NULL ? CLI_OK : cli_fail_memory();
}

int cli_page_close(cli_page *p, const char *path)
{
    static const char hole[] = "@DATA@";
    const char *page = (const char *)pages[p->kind], *at = strstr(page, hole);
    int sound = ferror(p->data) == 0;
    sound = fclose(p->data) == 0 && sound && at != NULL;
    int code = sound ? CLI_OK : cli_fail_memory();
    if (sound) {
        const char *behind = at + strlen(hole);
        cli_piece pieces[] = {{page, (size_t)(at - page)}, {p->json, p->json_len}, {behind, strlen(behind)}};
        code = cli_file_write(path, pieces, 3);
    }
    free(p->json);
    return code;
}
