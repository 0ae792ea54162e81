"""What every head is: a module around its graph, with a config, labels and a tokenizer."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self, Unpack

import torch
from torch import Tensor, nn

from flodl.core.log import warn_once
from flodl.data.batch import Batch
from flodl.graph import Graph
from flodl_hf.config.base import HfConfig
from flodl_hf.encoder.spec import FamilySpec
from flodl_hf.errors import HeadError, SequenceTooLongError, TokenizerMismatchError
from flodl_hf.heads.graphs import Shape, build_head
from flodl_hf.heads.loading import HeadKind, Loaded, LoadOptions, PretrainedOptions, load_head
from flodl_hf.hub.fetch import locate
from flodl_hf.tokenizer.encoded import EncodedBatch
from flodl_hf.tokenizer.tokenizer import HfTokenizer
from flodl_hf.weights.blank import without_values
from flodl_hf.weights.init import initialize, set_sinusoids
from flodl_hf.weights.report import HfLoadReport

_log = logging.getLogger(__name__)

Encoded = EncodedBatch | Batch | Mapping[str, Tensor]


class Head(nn.Module):
    """A pretrained backbone with a head on it.

    It is a module of the reference's parameter names: ``state_dict``, ``named_parameters`` and
    attributes are those of its graph, ``head.bert``, ``head.classifier``.

    Args:
        graph: The model itself.
        config: What it was built from.
        labels: Names of the classes; empty where there are none.
        tokenizer: For the methods that take texts.
        load_report: What loading found, if it was loaded.
    """

    spec: ClassVar[FamilySpec]
    config_class: ClassVar[type[HfConfig]]
    shape: ClassVar[Shape]

    graph: Graph
    config: HfConfig
    labels: tuple[str, ...]
    tokenizer: HfTokenizer | None
    load_report: HfLoadReport | None

    def __init__(
        self,
        graph: Graph,
        config: HfConfig,
        labels: Sequence[str] = (),
        *,
        tokenizer: HfTokenizer | None = None,
        load_report: HfLoadReport | None = None,
    ) -> None:
        super().__init__()
        self.graph = graph
        self.config = config
        self.labels = tuple(labels)
        self.load_report = load_report
        self.tokenizer = None
        if tokenizer is not None:
            self.with_tokenizer(tokenizer)
        graph.set_source_config(config.to_json())
        self.register_load_state_dict_pre_hook(_add_graph_prefix)  # type: ignore[no-untyped-call] # torch leaves it untyped

    # ------------------------------------------------------------- where it comes from

    @classmethod
    def build(
        cls,
        config: HfConfig,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Self:
        """Return the head with fresh random weights, in training mode.

        Args:
            config: Of this family.
            device: Where the parameters go.
            dtype: Their dtype; float32 when left out.
            generator: Source of the weights; a fixed seed when left out.

        Raises:
            ConfigError: The config has a value this head cannot be built from.
        """
        count = cls.label_count(config)
        with without_values():
            graph = build_head(config, cls.spec, cls.shape, count)
        initialize(
            graph,
            list(graph.state_dict()),
            std=config.initializer_range,
            generator=generator,
            dtype=dtype or torch.float32,
        )
        if getattr(config, "sinusoidal_pos_embds", False):
            set_sinusoids(graph)
        config = config.with_architectures(cls.architecture())
        if cls.shape in {"sequence", "token"}:
            config = config.replace(num_labels=count)
        graph.to(device)
        return cls(graph, config, cls.label_names(config, count))

    @classmethod
    def from_pretrained(
        cls, source: str | os.PathLike[str], **options: Unpack[PretrainedOptions]
    ) -> Self:
        """Return the head with the weights of a directory or of a repository on the Hub.

        It is in evaluation mode, and its tokenizer is attached if there is one.

        Args:
            source: A directory, or ``owner/name``.
            options: See ``PretrainedOptions``.

        Raises:
            RepoIdError: ``source`` is neither.
            HubError: Files cannot be had.
            ConfigError: The config is not legal, or of another family.
            KeySetError: The weights are not those of this head; ``new_head=True`` allows a
                backbone without it.
        """
        chosen = LoadOptions(**options)
        return cls.from_loaded(load_head(locate(source, chosen.hub()), chosen, cls.kind()))

    @classmethod
    def from_loaded(cls, loaded: Loaded) -> Self:
        """Return the head around a graph that was loaded for it."""
        head = cls(
            loaded.graph,
            loaded.config,
            cls.label_names(loaded.config, loaded.labels),
            tokenizer=loaded.tokenizer,
            load_report=loaded.report,
        )
        head.eval()
        return head

    @classmethod
    def kind(cls) -> HeadKind:
        """Return which head of which family this class is."""
        return HeadKind(
            spec=cls.spec,
            config_class=cls.config_class,
            shape=cls.shape,
            architecture=cls.architecture(),
        )

    @classmethod
    def architecture(cls) -> str:
        """Return the reference's name of this head."""
        suffix = {
            "sequence": "SequenceClassification",
            "token": "TokenClassification",
            "question": "QuestionAnswering",
            "masked": "MaskedLM",
        }[cls.shape]
        return f"{cls.spec.class_stem}For{suffix}"

    @classmethod
    def label_count(cls, config: HfConfig) -> int:
        """Return how many outputs the last layer has when no file says so."""
        return 2 if cls.shape == "question" else config.label_count()

    @classmethod
    def label_names(cls, config: HfConfig, count: int) -> tuple[str, ...]:
        """Return the names of the classes; none for heads without classes."""
        return config.label_names(count) if cls.shape in {"sequence", "token"} else ()

    # ------------------------------------------------------------- the module

    def __getattr__(self, name: str) -> Any:
        # Reached only for what is no attribute of the head itself: parts of the graph.
        try:
            return super().__getattr__(name)
        except AttributeError:
            graph = self.__dict__.get("_modules", {}).get("graph")
            if graph is None or name not in graph._modules:  # noqa: SLF001 - torch's own table
                raise
            return graph._modules[name]  # noqa: SLF001 - torch's own table

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """Return the logits for token ids ``[B, S]``.

        Args:
            input_ids: Token ids.
            attention_mask: 1 for tokens, 0 for padding, ``[B, S]``; ``None`` for no padding.
            token_type_ids: First or second text, ``[B, S]``, for models with a table of types.
            position_ids: Instead of the usual positions, ``[B, S]``.
        """
        given = {"attention_mask": attention_mask, "position_ids": position_ids}
        if self.spec.takes_types:
            given["token_type_ids"] = token_type_ids
        elif token_type_ids is not None:
            raise HeadError(
                f"token_type_ids were given: {self.spec.model_type} has no token types",
                hint="leave them out",
            )
        if attention_mask is None:
            self._warn_of_pads(input_ids)
        if self.training and torch.is_grad_enabled():
            self._warn_of_half()
        logits: Tensor = self.graph(input_ids, **given)
        return logits

    def _warn_of_pads(self, input_ids: Tensor) -> None:
        """Say once that padding without a mask is read as text; a GPU is not asked."""
        if input_ids.device.type != "cpu" or torch.compiler.is_compiling():
            return
        pad = self.config.sizes().pad
        if bool((input_ids == pad).any()):
            warn_once(
                _log,
                "%s: the ids hold padding (%d), and there is no attention_mask: it is read as text",
                type(self).__name__,
                pad,
            )

    def _warn_of_half(self) -> None:
        """Say once that steps of an optimizer are lost in float16."""
        if torch.compiler.is_compiling() or next(self.parameters()).dtype != torch.float16:
            return
        warn_once(
            _log,
            "%s trains with float16 parameters, which lose small steps: load it with "
            "dtype=torch.float32, and train with mixed precision",
            type(self).__name__,
        )

    def named_modules(
        self, memo: set[nn.Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Module]]:
        """Yield the modules under the names they have in a checkpoint."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        yield from self.graph.named_modules(memo, prefix, remove_duplicate)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override] # torch has overloads
        """Return the state of the graph, under the names of a checkpoint."""
        state: dict[str, Any] = self.graph.state_dict(*args, **kwargs)
        return state

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load what ``state_dict`` returned."""
        return self.graph.load_state_dict(state_dict, strict=strict, assign=assign)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    # ------------------------------------------------------------- encoded texts

    @property
    def limit(self) -> int | None:
        """Tokens that a text may have, or ``None`` for any number."""
        sizes = self.config.sizes()
        if not getattr(self.config, "position_biased_input", True):
            return None
        return sizes.positions - (sizes.pad + 1 if self.spec.positions == "offset" else 0)

    def with_tokenizer(self, tokenizer: HfTokenizer) -> Self:
        """Attach a tokenizer; the head itself is returned.

        Raises:
            TokenizerMismatchError: It has ids that the model has not, or pads with another token
                where positions depend on it.
        """
        sizes = self.config.sizes()
        if tokenizer.highest_id >= sizes.vocab:
            raise TokenizerMismatchError(
                f"the tokenizer has ids up to {tokenizer.highest_id}, the model {sizes.vocab} "
                "tokens",
                hint="take the tokenizer of the model's own repository",
            )
        pad = tokenizer.pad_id
        if pad is not None and pad != sizes.pad:
            said = f"the tokenizer pads with id {pad}, the model's pad_token_id is {sizes.pad}"
            if self.spec.positions == "offset":
                raise TokenizerMismatchError(
                    f"{said}, and positions are counted around it",
                    hint="take the tokenizer of the model's own repository",
                )
            _log.warning("%s: %s; pads are masked in either case", type(self).__name__, said)
        self.tokenizer = tokenizer
        return self

    def need_tokenizer(self, method: str) -> HfTokenizer:
        """Return the tokenizer.

        Raises:
            HeadError: There is none; ``method`` says who asked.
        """
        if self.tokenizer is None:
            raise HeadError(
                f"{method}() takes texts, and this head has no tokenizer",
                hint="head.with_tokenizer(HfTokenizer.from_pretrained(...)), or encode them "
                "yourself",
            )
        return self.tokenizer

    def inputs_of(self, enc: Encoded) -> dict[str, Tensor | None]:
        """Return the keyword arguments of a call for an encoded batch.

        The mask is left out when nothing is padded, which is known without asking the device.

        Raises:
            SequenceTooLongError: A row has more tokens than the model has positions.
        """
        ids, mask = enc["input_ids"], _get(enc, "attention_mask")
        static = enc.static if isinstance(enc, Batch) else {}
        if self.limit is not None and ids.shape[1] > self.limit:
            self._refuse_long(enc)
        if static.get("has_padding") is False:
            mask = None
        inputs: dict[str, Tensor | None] = {"input_ids": ids, "attention_mask": mask}
        if self.spec.takes_types and self.config.sizes().types > 1:
            inputs["token_type_ids"] = _get(enc, "token_type_ids")
        if static.get("pads_left") and self.spec.positions == "absolute":
            inputs["position_ids"] = _get(enc, "position_ids")
        return inputs

    def _refuse_long(self, enc: Encoded) -> None:
        lengths = _get(enc, "lengths")
        width = enc["input_ids"].shape[1]
        row = int(lengths.argmax()) if lengths is not None else 0
        length = int(lengths[row]) if lengths is not None else width
        assert self.limit is not None
        raise SequenceTooLongError(max(length, width), self.limit, row)

    def forward_encoded(self, enc: Encoded) -> Tensor:
        """Return the logits for an encoded batch, in whatever mode the head is in."""
        logits: Tensor = self(**self.inputs_of(enc))
        return logits

    def moved(self, enc: Encoded) -> Encoded:
        """Return an encoded batch on the model's device."""
        device = self.device
        if isinstance(enc, Batch):
            return enc.to(device)
        return {name: tensor.to(device) for name, tensor in enc.items()}

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """Evaluate without gradients in the ``with`` block; the mode is restored after it."""
        was_training = self.training
        self.eval()
        try:
            with torch.inference_mode():
                yield
        finally:
            self.train(was_training)


def _get(enc: Encoded, name: str) -> Tensor | None:
    return enc.get_named(name) if isinstance(enc, Batch) else enc.get(name)


def _add_graph_prefix(
    _module: nn.Module, state: dict[str, Any], prefix: str, *_others: Any
) -> None:
    """Let a module that holds a head load what its ``state_dict`` gave: no name says ``graph.``."""
    for name in [key for key in state if key.startswith(prefix)]:
        rest = name.removeprefix(prefix)
        if not rest.startswith("graph."):
            state[f"{prefix}graph.{rest}"] = state.pop(name)
