"""A fingerprint of a data set and its order: ranks that differ in it must not train together."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from flodl.data.adapter import as_batch_dataset
from flodl.data.dataset import as_tensor, declared_names, fields_of, item_reader
from flodl.data.resume import order_crc

if TYPE_CHECKING:
    from flodl.data.dataset import AnyDataSet


def dataset_signature(dataset: AnyDataSet, order: Tensor) -> str:
    """Return the SHA-256 of a data set's own signature, or of samples of it, and of its order.

    Args:
        dataset: One with ``signature() -> str`` is asked for that. Of others the length and the
            bytes of the first, middle and last sample count.
        order: The order of epoch 0.
    """
    digest = hashlib.sha256()
    own = getattr(dataset, "signature", None)
    if callable(own):
        digest.update(str(own()).encode())
    else:
        _add_samples(digest, dataset)
    digest.update(f"/{order_crc(order)}".encode())
    return digest.hexdigest()


def _add_samples(digest: Any, dataset: AnyDataSet) -> None:
    count = len(as_batch_dataset(dataset))
    read = item_reader(cast("Any", dataset))
    digest.update(str(count).encode())
    for index in sorted({0, count // 2, count - 1}):
        names, values = fields_of(read(index))
        digest.update(repr(names or declared_names(dataset)).encode())
        for value in values:
            tensor = as_tensor(value).detach().cpu().contiguous()
            digest.update(f"{tensor.dtype}{list(tensor.shape)}".encode())
            digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
