"""Which file of a model holds its weights."""

from __future__ import annotations

from pathlib import Path

from flodl_hf.errors import NoSafetensorsError, WeightsError
from flodl_hf.hub.fetch import FileSet, converted_folder
from flodl_hf.weights.source import INDEX_NAME, WEIGHTS_NAME, read_index

PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")


def find_weights(files: FileSet) -> Path:
    """Return the file of weights, or the index of several that all lie beside it.

    A converted copy comes first, then ``model.safetensors``, then its shards.

    Raises:
        NoSafetensorsError: There is only a pickle, which loaders never open; or nothing.
        WeightsError: A shard is missing.
    """
    if files.repo_id is not None and files.revision is not None:
        folder = converted_folder(files.repo_id, files.revision, files.subfolder)
        copy = folder / WEIGHTS_NAME
        if copy.is_file():
            return copy
    single = files.find(WEIGHTS_NAME)
    if single is not None:
        return single
    index = files.find(INDEX_NAME)
    if index is not None:
        _require_parts(files, index)
        return index
    pickle = next((name for name in PICKLES if files.find(name) is not None), None)
    if pickle is None:
        raise NoSafetensorsError(
            f"{files.title}: no {WEIGHTS_NAME}", hint="name a directory of a saved model"
        )
    at = f" --revision {files.revision}" if files.revision else ""
    at += f" --subfolder {files.subfolder}" if files.subfolder else ""
    raise NoSafetensorsError(
        f"{files.title}: the weights are only there as {pickle}, a pickle, which may run code",
        hint=f"if you trust it: fdl flodl-hf convert {files.repo_id or files.title}{at}",
    )


def find_pickle(files: FileSet) -> Path:
    """Return the pickled file of weights, or the index of several that all lie beside it.

    Raises:
        NoSafetensorsError: There is none.
        WeightsError: A part is missing.
    """
    for name in PICKLES:
        path = files.find(name)
        if path is not None:
            if path.suffix == ".json":
                _require_parts(files, path)
            return path
    raise NoSafetensorsError(
        f"{files.title}: no {' or '.join(PICKLES)}: there is nothing to convert"
    )


def _require_parts(files: FileSet, index: Path) -> None:
    """See that every file that an index names is there; on the Hub, fetch it."""
    for name in sorted({path.name for path in read_index(index).values()}):
        if files.repo_id is not None:
            files.require(name)
        elif files.find(name) is None:
            raise WeightsError(
                f"{index}: names {name}, which is not there",
                hint="copy or download the missing file",
            )
