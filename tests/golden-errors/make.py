#!/usr/bin/env python3
"""Makes frames that must be refused, bad/, and odd ones that must not, good/, with their manifest.json.

    make.py              makes what is new; refuses, and writes nothing, if a frame that is there would change or go
    make.py --force      lets it change
    make.py --check      only says whether all is as it would be made
    make.py --show P     prints what program P and the reference decoder say to each frame in bad/

What they are is in cases.py; tests/ref/frame_writer.py writes them, from scratch.
"""

import argparse
import json
import pathlib
import subprocess
import sys

from cases import BAD, GOOD, ref

FOLDER = pathlib.Path(__file__).resolve().parent


def show(program):
    for row, frame in BAD.values():
        done = subprocess.run([program, "inspect", str(FOLDER / row["file"])], capture_output=True, timeout=60)
        try:
            ref.decode(frame)
            said = "ACCEPTED"
        except ref.FormatError as error:
            said = str(error)
        sentence = done.stderr.decode("utf-8", "backslashreplace").strip().partition(".tg: ")[2]
        ours = sentence if done.returncode else "ACCEPTED"
        print(f"{row['file'][4:-3]} ({row['rule']})\n    {ours}\n    {said}")


def main():
    parser = argparse.ArgumentParser(description="Make frames that must be refused, and odd ones that must not.")
    parser.add_argument("--force", action="store_true", help="let frames change that are there already")
    parser.add_argument("--check", action="store_true", help="only say whether all is as it would be made")
    parser.add_argument("--show", metavar="PROGRAM", help="print what a program and the reference decoder say")
    options = parser.parse_args()
    if options.show:
        return show(options.show)

    files = {row["file"]: frame for row, frame in [*BAD.values(), *GOOD.values()]}
    manifest = {"bad": [row for row, _ in BAD.values()], "good": [row for row, _ in GOOD.values()]}
    files["manifest.json"] = (json.dumps(manifest, indent=1) + "\n").encode()
    there = {str(path.relative_to(FOLDER)): path.read_bytes() for path in FOLDER.rglob("*")
             if path.suffix in (".tg", ".json")}
    changes = [path for path in there if path not in files or files[path] != there[path]]
    if options.check:
        changes += [path for path in files if path not in there]
        print("\n".join(f"{path} is not as it would be made" for path in sorted(changes)), end="\n" * bool(changes))
        return len(changes) > 0
    changes = sorted(path for path in changes if path.endswith(".tg"))
    if changes and not options.force:
        print(*(f"{path} would change or go" for path in changes), "nothing was written", sep="\n", file=sys.stderr)
        return 1
    for path in set(there) - set(files):
        (FOLDER / path).unlink()
    for path, data in files.items():
        (FOLDER / path).parent.mkdir(exist_ok=True)
        (FOLDER / path).write_bytes(data)
    print(f"{len(BAD)} bad frames, {len(GOOD)} good ones, {sum(map(len, files.values()))} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
