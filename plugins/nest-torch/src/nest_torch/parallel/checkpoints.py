"""Checkpoints of `torch.distributed.checkpoint`: each rank writes its share, any plan or one process reads them.

Keys are those of `{"model": module.state_dict(), "optimizer": get_optimizer_state_dict(...)}` of PyTorch with
`flatten_optimizer_state_dict`: names and layouts of the module. Pieces that are stored rank by rank are written whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException

from nest.errors import InputError
from nest_torch.parallel import agreement
from nest_torch.parallel.saving import as_large, laid, owners, stored, whole

OTHER = "load another checkpoint of parallel.save()"


def save(parts: Sequence[nn.Module], folder: str, optimizer: Any = None) -> None:
    """Write parameters, persistent buffers and the state of an optimizer; every rank must call it."""
    state: dict[str, Any] = {}
    for stage in parts:
        for path, owner, name, tensor in owners(stage):
            rows = {f"model.{path}": tensor, **_moments(optimizer, path, tensor)}
            for key, each in rows.items():
                apart = stored(owner, name) and as_large(each, tensor)
                state[key] = whole(owner, name, each.detach()).cpu() if apart else each
    dcp.save(state, checkpoint_id=folder)


def _moments(optimizer: Any, path: str, tensor: Any) -> dict[str, Any]:
    group = _group(optimizer, tensor)
    if group is None:
        return {}
    state = {f"optimizer.state.{path}.{key}": each for key, each in optimizer.state.get(tensor, {}).items()}
    settings = {key: each for key, each in group.items() if key != "params"}
    return state | {f"optimizer.param_groups.{path}.{key}": each for key, each in settings.items()}


def _group(optimizer: Any, tensor: Any) -> dict[str, Any] | None:
    """Settings of the group that has a parameter; None: the optimizer does not train it."""
    groups = () if optimizer is None else optimizer.param_groups
    return next((each for each in groups if any(one is tensor for one in each["params"])), None)


def load(parts: Sequence[nn.Module], folder: str, optimizer: Any = None) -> None:
    """Read a checkpoint of `save` under any plan; every rank must call it.

    Raises:
        InputError: a file is missing or cut short, a tensor is missing, or has other sizes; on every rank, and nothing
            is taken over.
    """
    wanted = agreement.together(lambda: list(_wanted(parts, _known(Path(folder)), optimizer)))
    whole_rows = [row for row in wanted if stored(*row[2:4]) and as_large(row[1], row[4])]
    apart = {key for key, *_ in whole_rows}
    state = {key: each for key, each, *_ in wanted if key not in apart}
    _read(state, folder)
    with torch.no_grad():
        for key, each, owner, name, _ in whole_rows:  # One after the other: each takes the memory of a whole tensor.
            given = {key: torch.empty(each.shape, dtype=each.dtype)}
            agreement.together(partial(_read, given, folder, alone=True))
            each.copy_(laid(owner, name, each, given[key]))
    for key, each, _, _, tensor in wanted if optimizer is not None else ():
        last = key.rpartition(".")[2]
        if key.startswith("optimizer.state."):
            optimizer.state[tensor][last] = each if isinstance(each, torch.Tensor) else state[key]
        elif key.startswith("optimizer.param_groups."):
            (_group(optimizer, tensor) or {})[last] = state[key]


def _known(folder: Path) -> Mapping[str, Any]:
    """Sizes and kinds of the entries of a checkpoint, whose files are all there.

    Raises:
        InputError: one is not, or is cut short.
    """
    if not (folder / ".metadata").is_file():
        raise InputError(f"{folder} has no .metadata, so no checkpoint was written to its end; {OTHER}.")
    try:
        found = dcp.FileSystemReader(folder).read_metadata()
        ends: dict[str, int] = {}
        for each in found.storage_data.values():
            ends[each.relative_path] = max(each.offset + each.length, ends.get(each.relative_path, 0))
    except Exception as error:  # A pickle raises whatever its bytes make of it.
        raise InputError(f"{folder / '.metadata'} is damaged ({type(error).__name__}); {OTHER}.") from None
    for name, end in sorted(ends.items()):
        if not (folder / name).is_file():
            raise InputError(f"{folder / name} is missing; copy it from where it was written, or {OTHER}.")
        if (folder / name).stat().st_size < end:
            raise InputError(f"{folder / name} is cut short, {end} bytes were written; copy it again, or {OTHER}.")
    return found.state_dict_metadata  # type: ignore[no-any-return]


def _read(state: dict[str, Any], folder: str, alone: bool = False) -> None:
    """Fill `state`; `alone`: without the other ranks.

    Raises:
        InputError: what a file holds cannot be read.
    """
    try:
        dcp.load(state, checkpoint_id=folder, no_dist=alone)
    except CheckpointException as error:
        first = next(iter(error.failures.values()))[0]
        raise InputError(f"the files in {folder} are damaged: {agreement.reason(first)} Copy them again.") from None


def _wanted(
    parts: Sequence[nn.Module], known: Mapping[str, Any], optimizer: Any
) -> Iterator[tuple[str, Any, nn.Module, str, Any]]:
    """Key, tensor to be filled or None, owner, name and parameter of each entry for this rank."""
    for stage in parts:
        for path, owner, name, tensor in owners(stage):
            key = f"model.{path}"
            if key not in known:
                raise InputError(f"the checkpoint has no {path!r}; give the folder of parallel.save() of this module.")
            if known[key].size != tensor.shape:
                raise InputError(
                    f"{path} is {list(known[key].size)} in the checkpoint, but {list(tensor.shape)} in the module; "
                    "make the module of the sizes that were saved."
                )
            yield key, tensor.detach(), owner, name, tensor
            if _group(optimizer, tensor) is None:
                continue
            starts = tuple(f"optimizer.{kind}.{path}." for kind in ("state", "param_groups"))
            found = [each for each in known if each.startswith(starts)]
            if not found:
                raise InputError(f"the checkpoint has no state of an optimizer for {path!r}.")
            for each in found:
                size = getattr(known[each], "size", None)
                empty = None if size is None else torch.empty(size, dtype=known[each].properties.dtype)
                alike = empty is not None and size == tensor.shape and not each.endswith(".step")
                moment = torch.zeros_like(tensor, dtype=known[each].properties.dtype) if alike else empty
                yield each, moment, owner, name, tensor
