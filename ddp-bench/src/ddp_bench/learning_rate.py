"""The learning rate of a run, from the model's own and the amount of training asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class LearningRate:
    """A learning rate and why it is not the model's own, where it is not."""

    value: float
    note: str | None = None


def choose_rate(
    default: float,
    *,
    epochs: int,
    default_epochs: int,
    scale: float | None = None,
    autoscale: bool = True,
) -> LearningRate:
    """Return the rate for a run of ``epochs`` epochs.

    An explicit ``scale`` multiplies the default. Without one, a run longer than the default gets
    ``default * default_epochs / epochs``, unless ``autoscale`` is off.
    """
    if scale is not None:
        return LearningRate(
            value=default * scale, note=f"{default:g} x {scale:g}, as --lr-scale says"
        )
    if autoscale and epochs > default_epochs:
        return LearningRate(
            value=default * default_epochs / epochs,
            note=f"{default:g} x {default_epochs} / {epochs} epochs; --no-lr-autoscale keeps it",
        )
    return LearningRate(value=default)
