from __future__ import annotations

from typing import Any

import torch

from ddp_bench.loading.sets import AugmentedItems


def test_every_source_of_the_suite_has_a_case(cases: dict[str, Any]) -> None:
    assert list(cases) == [
        "images in memory",
        "augmented items",
        "large images in a file",
        "token windows in a file",
        "tar archives",
    ]


def test_augmentation_depends_on_the_index_alone() -> None:
    images = torch.arange(2 * 3 * 32 * 32).view(2, 3, 32, 32).to(torch.uint8)
    data = AugmentedItems(images, torch.arange(2))
    assert torch.equal(data[1][0], data[1][0])
    assert data[0][0].shape == (3, 32, 32)
    assert torch.equal(data[0][0][:, 4:, 4:], images[0][:, :-4, :-4])
