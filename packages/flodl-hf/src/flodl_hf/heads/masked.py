"""Masked language models: what a hidden token may be."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import ClassVar, Literal, overload

import torch
from torch import Tensor, nn

from flodl.core.log import warn_once
from flodl_hf.errors import MaskTokenError
from flodl_hf.heads.base import Encoded, Head
from flodl_hf.heads.batches import in_order, single_texts, text_batches
from flodl_hf.heads.graphs import Shape
from flodl_hf.heads.losses import Reduction, check_shape, reduced, token_loss

_log = logging.getLogger(__name__)

_DECODERS = (
    ("vocab_transform", "vocab_activation", "vocab_layer_norm", "vocab_projector"),
    ("cls.predictions",),
    ("lm_head",),
    ("predictions",),
    ("lm_predictions.lm_head",),
)

Candidates = list[tuple[str, float]]


class MaskedHead(Head):
    """A masked language model."""

    shape: ClassVar[Shape] = "masked"

    @property
    def mask_token(self) -> str:
        """The token that stands for a hidden one, in texts."""
        found = self.tokenizer.special.mask if self.tokenizer is not None else None
        return found or self.spec.mask_token

    def fill_mask(self, text: str, top_k: int = 5) -> Candidates:
        """Return the most likely tokens for the one mask token in a text, best first.

        Raises:
            MaskTokenError: The text has no mask token, or several.
            ValueError: ``top_k`` is less than 1, or more than there are tokens.
        """
        found = self.fill_masks([text], top_k)[0]
        if len(found) != 1:
            raise MaskTokenError(
                f"the text has {len(found)} mask tokens {self.mask_token!r}; fill_mask takes one",
                hint="fill_masks takes texts with any number of them",
            )
        return found[0]

    def fill_masks(
        self, texts: Sequence[str], top_k: int = 5, *, batch_size: int = 32
    ) -> list[list[Candidates]]:
        """Return candidates for each mask token of each text, best first.

        Raises:
            TypeError: A single text.
            HeadError: There is no tokenizer.
            MaskTokenError: The tokenizer has no mask token.
            ValueError: ``top_k`` is less than 1, or more than there are tokens.
        """
        given = single_texts(texts, "fill_masks")
        tokenizer = self.need_tokenizer("fill_masks")
        size = self.config.vocab_size
        if not 1 <= top_k <= size:
            raise ValueError(f"top_k={top_k}: expected 1 to {size}, the number of tokens")
        mask_id = tokenizer.token_to_id(self.mask_token)
        if mask_id is None:
            raise MaskTokenError(
                f"the tokenizer has no token {self.mask_token!r}",
                hint="take the tokenizer of the model's own repository",
            )
        self._warn_of_untrained()
        found: dict[int, list[Candidates]] = {}
        for enc in text_batches(tokenizer, given, size=batch_size, limit=self.limit):
            rows, columns = (enc.input_ids == mask_id).nonzero(as_tuple=True)
            with self.predicting():
                states = self.hidden(self.moved(enc))
                at = states[rows.to(states.device), columns.to(states.device)]
                scores, ids = torch.softmax(self.decode(at).float(), -1).topk(top_k)
            found |= {index: [] for index in enc.sources}
            for row, row_ids, row_scores in zip(
                rows.tolist(), ids.tolist(), scores.tolist(), strict=True
            ):
                words = [tokenizer.decode([i], skip_special_tokens=False).strip() for i in row_ids]
                found[enc.sources[row]].append(list(zip(words, row_scores, strict=True)))
        return in_order(found)

    def hidden(self, enc: Encoded) -> Tensor:
        """Return the last hidden states of an encoded batch, ``[B, S, H]``."""
        inputs = self.inputs_of(enc)
        given = {name: inputs.get(name) for name in self.spec.inputs}
        backbone = self.graph.get_submodule(self.spec.prefix)
        states: Tensor = backbone(inputs["input_ids"], **given)
        return states

    def decode(self, states: Tensor) -> Tensor:
        """Return scores of all tokens, ``[..., V]``, for hidden states ``[..., H]``."""
        for module in self._decoder():
            states = module(states)
        return states

    def _decoder(self) -> list[nn.Module]:
        names = dict(self.graph.named_modules())
        paths = next(paths for paths in _DECODERS if paths[0] in names)
        return [names[path] for path in paths]

    def _warn_of_untrained(self) -> None:
        report = self.load_report
        if report is None:
            return
        replaced = any(name.startswith("mask_predictions.") for name in report.ignored)
        if report.new or replaced:
            why = "initialized here" if report.new else "of a model trained to spot replaced tokens"
            warn_once(_log, "fill_mask: the head is %s; its candidates mean little", why)

    @overload
    def compute_loss(
        self,
        enc: Encoded,
        labels: Tensor,
        *,
        positions: Tensor | None = None,
        reduction: Literal["mean"] = "mean",
    ) -> Tensor: ...
    @overload
    def compute_loss(
        self,
        enc: Encoded,
        labels: Tensor,
        *,
        positions: Tensor | None = None,
        reduction: Literal["sum"],
    ) -> tuple[Tensor, Tensor]: ...
    def compute_loss(
        self,
        enc: Encoded,
        labels: Tensor,
        *,
        positions: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the cross entropy over tokens whose label is not -100.

        Args:
            enc: An encoded batch, on the model's device like the labels.
            labels: Tokens ``[B, S]``; with ``positions``, ``[B, K]``.
            positions: Where the labels stand, ``[B, K]``: only these are scored, which saves most
                of the work of a large vocabulary.
            reduction: ``"mean"``, or ``"sum"`` for the sum and the number of tokens.

        Raises:
            HeadError: Labels or positions do not fit.
        """
        if positions is None:
            return reduced(token_loss(self.forward_encoded(enc), labels), reduction)
        check_shape(labels, tuple(positions.shape), "labels at the positions, [B, K]")
        states = self.hidden(enc)
        picked = states.gather(1, positions[..., None].expand(-1, -1, states.shape[-1]))
        return reduced(token_loss(self.decode(picked), labels), reduction)
