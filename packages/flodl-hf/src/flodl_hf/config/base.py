"""What the configs of all families share: reading and writing JSON, labels, and the sizes."""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from flodl_hf.config.fields import check_number, read_labels, read_value
from flodl_hf.errors import ConfigError, UnsupportedModelTypeError

ACTIVATIONS = (
    "gelu",
    "gelu_new",
    "gelu_pytorch_tanh",
    "gelu_fast",
    "gelu_python",
    "quick_gelu",
    "relu",
    "silu",
    "swish",
    "tanh",
    "sigmoid",
    "mish",
    "linear",
)

# Fields that are not read by their own name and type.
_SPECIAL = frozenset({"architectures", "labels", "dtype", "extra"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """What an encoder is built from, under one set of names for all families.

    Attributes:
        types: Rows of the token type table; 0 for none.
        embedding: Width of the embedding tables.
    """

    vocab: int
    hidden: int
    layers: int
    heads: int
    intermediate: int
    positions: int
    types: int
    embedding: int
    pad: int
    eps: float
    activation: str
    dropout: float
    attention_dropout: float


@dataclass(frozen=True, kw_only=True)
class HfConfig:
    """A ``config.json``: the keys that matter here as fields, all others in ``extra``.

    Field names are those of the file. Absent and ``null`` keys take the reference library's
    defaults; the sizes must be there.

    Attributes:
        labels: ``id2label`` in order, or ``None``.
        architectures: Names of the classes that the weights belong to.
        dtype: ``dtype`` or the older ``torch_dtype`` of the file, such as ``"float32"``.
        extra: Keys that mean nothing here; ``to_json`` writes them back.
    """

    model_type: ClassVar[str]
    presence: ClassVar[tuple[str, ...]] = ()
    """Keys that must be in a file."""

    vocab_size: int
    max_position_embeddings: int
    pad_token_id: int = 0
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True
    num_labels: int | None = None
    problem_type: str | None = None
    labels: tuple[str, ...] | None = None
    architectures: tuple[str, ...] = ()
    dtype: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for key in self.presence:
            check_number(key, getattr(self, key), 1)
        sizes = self.sizes()
        if sizes.hidden % sizes.heads:
            key = next(key for key in self.presence if key.endswith("_heads"))
            raise ConfigError(
                key,
                f"config {key}={sizes.heads}: does not divide a width of {sizes.hidden}",
                value=sizes.heads,
            )
        for key in self.activation_keys():
            check_activation(key, getattr(self, key))
        if self.num_labels is not None:
            check_number("num_labels", self.num_labels, 1)
        self._check_numbers()
        kinds = ("regression", "single_label_classification", "multi_label_classification")
        if self.problem_type not in (None, *kinds):
            raise ConfigError(
                "problem_type",
                f"config problem_type={self.problem_type!r}: expected one of {', '.join(kinds)}",
                value=self.problem_type,
            )

    def _check_numbers(self) -> None:
        """Refuse numbers that no layer can be built with."""
        check_number("pad_token_id", self.pad_token_id, -1, self.vocab_size - 1)
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if value is None:
                continue
            if "dropout" in item.name:
                check_number(item.name, value, 0, 1)
            elif item.name in {"type_vocab_size", "layer_norm_eps", "initializer_range"}:
                check_number(item.name, value, 0)

    def sizes(self) -> Sizes:
        """Return the sizes of the encoder."""
        raise NotImplementedError

    def own_layers(self) -> int:
        """Return how many layers have weights of their own."""
        return self.sizes().layers

    def activation_keys(self) -> tuple[str, ...]:
        """Return the fields that name activations."""
        return ("hidden_act",)

    def head_dropout(self, shape: str) -> float:
        """Return the dropout in the head ``sequence``, ``token`` or ``question``."""
        return 0.0 if shape == "question" else self.sizes().dropout

    def label_count(self) -> int:
        """Return the number of labels that the file speaks of: 2 when it says nothing."""
        if self.num_labels is not None:
            return self.num_labels
        return len(self.labels) if self.labels is not None else 2

    def label_names(self, count: int) -> tuple[str, ...]:
        """Return ``count`` labels; those without a name are called ``LABEL_k``."""
        if self.labels is not None and len(self.labels) == count:
            return self.labels
        return tuple(f"LABEL_{index}" for index in range(count))

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed.

        Raises:
            ConfigError: What results is no legal config.
        """
        return dataclasses.replace(self, **changes)

    def with_architectures(self, *names: str) -> Self:
        """Return a copy that names these classes."""
        return self.replace(architectures=names)

    # ------------------------------------------------------------- JSON

    @classmethod
    def from_json(cls, text: str | bytes, title: str = "config") -> Self:
        """Return the config that a text describes.

        Args:
            text: What a ``config.json`` holds.
            title: Where it is from, for messages.

        Raises:
            ConfigError: It is no JSON object, a size is missing, or a value is illegal.
        """
        return cls.from_dict(parse_object(text, title))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the config that a JSON object describes; see ``from_json``."""
        kind = data.get("model_type", cls.model_type)
        if kind != cls.model_type:
            raise UnsupportedModelTypeError(
                "model_type",
                f"config model_type={kind!r}: {cls.__name__} reads {cls.model_type!r}",
                value=kind,
                hint="AutoConfig picks the class by model_type",
            )
        present = {key: value for key, value in data.items() if value is not None}
        missing = [key for key in cls.presence if key not in present]
        if missing:
            raise ConfigError(
                missing[0],
                f"config of a {cls.model_type} model: no {', '.join(missing)}",
                hint="sizes have no defaults: take config.json from beside the weights",
            )
        _refuse_unsupported(present)
        values: dict[str, Any] = {}
        for key, kinds in _kinds_of(cls).items():
            if key in present:
                values[key] = cls.read_field(key, present[key], kinds)
        values["labels"] = read_labels(present)
        values["architectures"] = read_value(
            "architectures", present.get("architectures", []), "list"
        )
        stored = present.get("dtype", present.get("torch_dtype"))
        values["dtype"] = None if stored is None else read_value("dtype", stored, "str")
        ours = set(values) | set(_kinds_of(cls)) | _NOT_EXTRA
        values["extra"] = {key: value for key, value in data.items() if key not in ours}
        return cls(**values)

    @classmethod
    def read_field(cls, key: str, value: Any, kind: str) -> Any:
        """Return the value of one field; families with odd spellings have their own way."""
        return read_value(key, value, kind)

    @classmethod
    def from_pretrained(cls, directory: str | os.PathLike[str]) -> Self:
        """Return the config in a local directory.

        Raises:
            ConfigError: There is none, or it is not legal.
        """
        return cls.from_json(read_config_text(directory))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object: known keys, and what was kept in ``extra``."""
        data: dict[str, Any] = dict(self.extra)
        for item in dataclasses.fields(self):
            if item.name not in _SPECIAL and item.name != "num_labels":
                value = getattr(self, item.name)
                # The reference takes some absent keys for a default, but null for a value.
                if value is not None:
                    data[item.name] = list(value) if isinstance(value, tuple) else value
        data["model_type"] = self.model_type
        data["architectures"] = list(self.architectures)
        if self.dtype is not None:
            data["dtype"] = data["torch_dtype"] = self.dtype
        if self.labels is not None:
            data["id2label"] = {str(index): name for index, name in enumerate(self.labels)}
            data["label2id"] = {name: index for index, name in enumerate(self.labels)}
        if self.num_labels is not None:
            data["num_labels"] = self.num_labels
        return data

    def to_json(self) -> str:
        """Return the text of a ``config.json``, keys sorted."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


_NOT_EXTRA = frozenset({"model_type", "id2label", "label2id", "torch_dtype"})


def check_activation(key: str, name: str) -> None:
    """Refuse an activation that does not exist here.

    Raises:
        ConfigError: Lists those that do.
    """
    if name not in ACTIVATIONS:
        raise ConfigError(
            key, f"config {key}={name!r}: there are {', '.join(ACTIVATIONS)}", value=name
        )


def parse_object(text: str | bytes, title: str = "config") -> dict[str, Any]:
    """Return the JSON object in a text; ``title`` says in messages which text.

    Raises:
        ConfigError: The text is no JSON, or no object.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError("", f"{title}: no JSON ({error})") from error
    if not isinstance(data, dict):
        raise ConfigError("", f"{title}: a JSON {type(data).__name__}, expected an object")
    return data


def read_config_text(directory: str | os.PathLike[str]) -> str:
    """Return the text of ``config.json`` in a directory.

    Raises:
        ConfigError: There is none.
    """
    path = Path(directory) / "config.json"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "", f"{path}: cannot be read ({error})", hint="name a directory with a config.json"
        ) from error


def _refuse_unsupported(data: Mapping[str, Any]) -> None:
    kind = data.get("position_embedding_type", "absolute")
    if kind != "absolute":
        raise ConfigError(
            "position_embedding_type",
            f"config position_embedding_type={kind!r}: only 'absolute' is supported",
            value=kind,
        )
    for key in ("is_decoder", "add_cross_attention"):
        if data.get(key, False) is not False:
            raise ConfigError(
                key, f"config {key}={data[key]!r}: only encoders are supported", value=data[key]
            )


def _kinds_of(cls: type[HfConfig]) -> dict[str, str]:
    """Return the JSON kind of each field that is read by its own name."""
    hints = typing.get_type_hints(cls)
    result = {}
    for item in dataclasses.fields(cls):
        if item.name in _SPECIAL:
            continue
        hint = hints[item.name]
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        plain = next(option for option in options if option is not types.NoneType)
        result[item.name] = "list" if typing.get_origin(plain) is tuple else plain.__name__
    return result
