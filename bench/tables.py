"""Tables that a script makes and a page holds, between <!-- NAME --> and <!-- end -->."""

import sys


def put_table(page, name, lines):
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->\n", "<!-- end -->"
    before, _, rest = text.partition(begin)
    if not rest:
        sys.exit(f"{page} has no place for the table '{name}'")
    page.write_text(before + begin + "\n".join(lines) + "\n" + end + rest.partition(end)[2], encoding="utf-8")
