#!/usr/bin/env python3
"""Reads the frames of this folder; README.md describes the manifest and the archive.

    golden_errors.py list                the names of all frames
    golden_errors.py extract NAME DIR    writes one frame to a folder
"""

import argparse
import functools
import json
import pathlib
import shlex
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
MANIFEST, ARCHIVE = FOLDER / "manifest.json", FOLDER / "golden-errors.zip"

sys.path.insert(0, str(FOLDER.parent / "ref"))
import archive  # noqa: E402


def rows():
    """{"bad": rows, "good": rows}"""
    return json.loads(MANIFEST.read_text(encoding="utf-8"))


@functools.lru_cache(maxsize=None)
def files():
    """{name: bytes} of the archive, which is read once."""
    return archive.load(ARCHIVE)


def frame_of(row):
    return files()[row["file"]]


def extract(row, folder):
    path = folder / pathlib.PurePath(row["file"]).name
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(frame_of(row))
    if "rule" in row:
        print(f"# must be refused: {row['rule']}; the program's message contains '{row['program']}'")
    else:
        print(f"# must be accepted: {row['about']}")
    print(shlex.join(["tersegrad", "inspect", str(path)]))


def main():
    parser = argparse.ArgumentParser(description="List the frames of this folder, or write one to another folder.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="print the names of all frames")
    command = commands.add_parser("extract", help="write a frame to a folder")
    command.add_argument("name", metavar="NAME", help="as listed, such as bad/magic")
    command.add_argument("folder", metavar="DIR", type=pathlib.Path)
    options = parser.parse_args()
    by_name = {row["file"].removesuffix(".tg"): row for kind in rows().values() for row in kind}
    if options.command == "list":
        print("\n".join(by_name))
    elif options.name.removesuffix(".tg") in by_name:
        extract(by_name[options.name.removesuffix(".tg")], options.folder)
    else:
        parser.error(f"there is no frame '{options.name}'; 'list' prints the names")


if __name__ == "__main__":
    main()
