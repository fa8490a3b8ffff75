"""States of ranks, as state_dict() returns them: what is in one, and which are needed to go on."""

from typing import Any, List, Mapping, Sequence, Union

from ._library import Error, TensorSpec

FORMAT = 1  # of a state

State = Mapping[str, Any]


def listed(given: Union[State, Sequence[State]]) -> List[Any]:
    """One state, or those of several ranks."""
    states: List[Any] = list(given) if isinstance(given, (list, tuple)) else [given]
    if not states or not all(isinstance(state, dict) and state.get("format") == FORMAT for state in states):
        raise Error("this is not what state_dict returned", "STATE")
    return states


def check_recipe(states: Sequence[State], recipe: str) -> None:
    """Raises Error unless all are of a recipe, and of one step."""
    first = states[0]
    for each in states:
        if each["recipe"] != recipe:
            raise Error(f"the state was saved with recipe '{each['recipe']}', and this is '{recipe}'", "MISMATCH")
        if each["step"] != first["step"]:
            raise Error(f"the states of ranks {first['rank']} and {each['rank']} were saved before steps "
                        f"{first['step']} and {each['step']}", "MISMATCH")


def fitting(states: List[Any], rank: int, world: int, host_size: int) -> List[Any]:
    """This rank's state if it is enough, else those of all old ranks; raises Error if some are not there."""
    first = states[0]
    saved_size = first.get("host_size") or 0
    if first["world"] == world and saved_size == host_size:
        own = [each for each in states if each["rank"] == rank]
        if not own:
            raise Error(f"the state is of rank {first['rank']}, and this is rank {rank}", "MISMATCH")
        return own
    if sorted(each["rank"] for each in states) != list(range(first["world"])):
        def shape(ranks: int, size: int) -> str:
            return f"{ranks} ranks" + (f" in hosts of {size}" if size else "")
        raise Error(f"the state is of a world of {shape(first['world'], saved_size)}, and this one has {shape(world, host_size)}; to go on with "
                    f"another number, give the list of all {first['world']} states", "MISMATCH")
    return states


def check_tensors(states: Sequence[State], tensors: Sequence[TensorSpec]) -> None:
    """Raises Error if one is of a model with other tensors."""
    now = [(name, tuple(shape)) for name, shape, _, _ in tensors]
    for state in states:
        if state["tensors"] is None:
            continue
        saved = [(name, tuple(shape)) for name, shape in state["tensors"]]
        for there, here in zip(saved, now):
            if there != here:
                raise Error(f"the state is of another model: it has '{there[0]}' of shape {there[1]} where this one "
                            f"has '{here[0]}' of shape {here[1]}", "MISMATCH")
        if len(saved) != len(now):
            raise Error(f"the state is of another model: it has {len(saved)} tensors, and this one {len(now)}", "MISMATCH")
