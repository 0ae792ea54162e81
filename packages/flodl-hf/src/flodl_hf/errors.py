"""The exception tree of flodl-hf.

HfError (a FlodlError)             every error flodl-hf raises on purpose
├── MissingExtraError              a feature needs a library that this install profile leaves out
├── RepoIdError                    a name is neither a directory nor owner/name (also a ValueError)
├── HubError                       a file cannot be had from the Hub
│   ├── OfflineError               it is not in the cache, and no request may be made
│   ├── RepoNotFoundError          no such repository, revision or file, or no access to it
│   └── NoSafetensorsError         the weights are there, but only as a pickle
├── ConfigError                    a config.json has a missing, wrong or unsupported value
│   ├── UnsupportedModelTypeError  its model_type is none of the families here
│   └── UnsupportedArchitectureError  its architecture is no head here
├── WeightsError                   weights cannot be read, placed or written
│   ├── KeySetError                keys are missing, left over, or of another shape
│   ├── DtypeError                 a parameter is stored with a dtype it cannot have
│   ├── KeyCollisionError          two stored tensors claim one name
│   └── TiedWeightError            a tensor stored twice has two values
├── TokenizerError                 texts cannot be encoded for a model
│   ├── EmptyBatchError            there are no texts
│   ├── NoPadTokenError            texts of several lengths, and nothing to pad with
│   ├── SequenceTooLongError       a text has more tokens than the model has positions
│   ├── TokenizerMismatchError     tokenizer and model do not belong together
│   └── MaskTokenError             a text has not exactly the mask tokens that were asked for
├── HeadError                      a head cannot do what was asked of it
└── VerifyError                    an exported directory is not what it should be

A message says what was asked, what is true instead, and what to do.
"""

from __future__ import annotations

from flodl.core.errors import FlodlError


class HfError(FlodlError):
    """Base of every error that flodl-hf raises on purpose."""


class MissingExtraError(HfError, ImportError):
    """A feature needs a library that this install profile leaves out.

    Args:
        library: The missing library, as it is imported.
        extra: The extra of flodl-hf that brings it.
    """

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(
            f"{library} is not installed; this flodl-hf has no [{extra}] extra",
            hint=f'pip install "flodl-hf[{extra}]"',
        )
        self.library = library
        self.extra = extra


class RepoIdError(HfError, ValueError):
    """A name is neither a local directory nor ``owner/name``."""


class HubError(HfError):
    """A file cannot be had from the Hub."""


class OfflineError(HubError):
    """A file is not in the cache, and no request may be made."""


class RepoNotFoundError(HubError):
    """There is no such repository, revision or file, or no access to it."""


class NoSafetensorsError(HubError):
    """The weights are there, but only in a form that loaders never open."""


class ConfigError(HfError, ValueError):
    """A ``config.json`` has a missing, wrong or unsupported value.

    Args:
        key: Its key.
        message: What is wrong with it.
        value: What it holds, or ``None``.
        hint: What to do.
    """

    def __init__(
        self, key: str, message: str, *, value: object = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.key = key
        self.value = value


class UnsupportedModelTypeError(ConfigError):
    """``model_type`` is none of the families that exist here."""


class UnsupportedArchitectureError(ConfigError):
    """``architectures`` names a class that is no head here."""


class WeightsError(HfError):
    """Weights cannot be read, placed or written."""


class KeySetError(WeightsError):
    """Stored keys and the model's keys differ, or shapes do.

    Attributes:
        report: The ``HfLoadReport`` with every difference.
    """

    def __init__(self, message: str, report: object, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.report = report


class DtypeError(WeightsError):
    """A parameter is stored with a dtype that a parameter cannot have."""


class KeyCollisionError(WeightsError):
    """Two stored tensors claim one name."""


class TiedWeightError(WeightsError):
    """A tensor that is stored twice has two different values."""


class TokenizerError(HfError):
    """Texts cannot be encoded for a model."""


class EmptyBatchError(TokenizerError, ValueError):
    """There are no texts to encode."""


class NoPadTokenError(TokenizerError):
    """Texts have different lengths, and the tokenizer has nothing to pad them with."""


class SequenceTooLongError(TokenizerError, ValueError):
    """A text has more tokens than the model has positions.

    Args:
        length: Tokens of the text.
        limit: Tokens that the model can take.
        row: Index of the text in the batch.
    """

    def __init__(self, length: int, limit: int, row: int) -> None:
        super().__init__(
            f"text {row} has {length} tokens; the model takes {limit}",
            hint=f"encode with truncation=True, max_length={limit}, or split the text",
        )
        self.length = length
        self.limit = limit
        self.row = row


class TokenizerMismatchError(TokenizerError):
    """A tokenizer and a model do not belong together."""


class MaskTokenError(TokenizerError, ValueError):
    """A text does not have exactly the mask tokens that were asked for."""


class HeadError(HfError):
    """A head cannot do what was asked of it."""


class VerifyError(HfError):
    """An exported directory is not what it should be."""
