"""Which ranks share a host, for exchanges that sum within hosts first (docs/steps.md, "Hosts")."""

import os
import pathlib
import socket
from typing import List, Optional, Sequence, Union

from ._library import Error, Rules, canonical

Hosts = Union[str, int]  # "flat", "auto" or the number of ranks a host


def given_size(hosts: Hosts) -> Optional[int]:
    """The number of ranks a host, 0 if it does not matter, or None if it has to be found. Raises Error for anything else."""
    if hosts == "auto":
        return None
    if hosts == "flat":
        return 0
    if isinstance(hosts, int) and not isinstance(hosts, bool) and hosts > 0:
        return hosts if hosts > 1 else 0
    raise Error(f"hosts is {hosts!r}; it is 'flat', 'auto' or the number of ranks a host")


def own_name() -> str:
    """What ranks of a host have in common: the node that torchrun has started them on, else the machine."""
    if "LOCAL_WORLD_SIZE" in os.environ and "GROUP_RANK" in os.environ:
        return "node " + os.environ["GROUP_RANK"]
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()} {boot.read_text().strip() if boot.exists() else ''}"


def common_size(names: Sequence[str]) -> int:
    """The number of ranks a host, by the hosts' names of all ranks; 0 if there is one host alone, or one rank a host, or if ranks are not
    numbered host by host with as many on each."""
    size = next((rank for rank, name in enumerate(names) if name != names[0]), len(names))
    blocks = [list(names[at:at + size]) for at in range(0, len(names), size)]
    is_even = all(block == [block[0]] * size for block in blocks) and len({block[0] for block in blocks}) == len(blocks)
    return size if is_even and 1 < size < len(names) else 0


def learns(recipe: str, rules: Optional[Rules]) -> bool:
    """Whether a recipe learns from the gradients of ranks (LGC), which those of hosts are not."""
    recipes: List[str] = [recipe, *dict(rules or {}).values()]
    return any("autoencoder" in canonical(each) for each in recipes)
