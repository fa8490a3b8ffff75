"""`python -m tersegrad` and the command `tersegrad` run the program that is in the package."""

import os
import pathlib
import sys
from typing import NoReturn


def main() -> NoReturn:
    program = pathlib.Path(__file__).with_name("bin") / "tersegrad"
    if not program.exists():
        sys.exit("tersegrad: this package was built without the program (TG_BUILD_CLI=OFF)")
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    main()
