"""What benches keep: rows in bench/results, and tables in pages, between <!-- NAME --> and <!-- end -->."""

import csv
import datetime
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def put_table(page, name, lines):
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->\n", "<!-- end -->"
    before, _, rest = text.partition(begin)
    if not rest:
        sys.exit(f"{page} has no place for the table '{name}'")
    page.write_text(before + begin + "\n".join(lines) + "\n" + end + rest.partition(end)[2], encoding="utf-8")


def commit():
    """What is measured; with a plus where files differ from it."""
    def git(*words):
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + ("+" if git("status", "--porcelain", "-uno") else "")


def read_rows(path):
    """The rows that are kept, with numbers where they are numbers."""
    def value(text):
        try:
            return float(text)
        except ValueError:
            return text
    with open(path, newline="", encoding="utf-8") as lines:
        return [{name: text if name in ("date", "commit", "torch") else value(text) for name, text in row.items()} for row in csv.DictReader(lines)]


def keep_rows(path, columns, key, rows, of):
    """Keeps rows, with the date and the commit that they are of, in place of those that are alike in the columns of the key."""
    made = [{"date": datetime.date.today().isoformat(), "commit": of, **row} for row in rows]
    replaced = {tuple(str(row[name]) for name in key) for row in made}
    others = []
    if path.exists():
        with open(path, newline="", encoding="utf-8") as lines:
            others = [row for row in csv.DictReader(lines) if tuple(row[name] for name in key) not in replaced]
    with open(path, "w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, ("date", "commit", *columns), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows([*others, *made])


def measured(rows):
    """When, and of which commits, rows were measured."""
    days = sorted({row["date"] for row in rows})
    commits = sorted({row["commit"] for row in rows})
    return f"measured on {' and '.join(days)}, commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}"
