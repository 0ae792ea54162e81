import gzip
import io
import json
import pickle

import pytest
import torch

from flodl import optim
from flodl.checkpoint import save_checkpoint
from flodl.checkpoint.optim import load_state, load_state_file, save_state_file
from flodl.core.errors import CheckpointError, StateFileError, StateMismatchError
from flodl.nn import GradScaler, StepDecay


@pytest.fixture
def target(run):
    """A trained optimizer, and a check that nothing in it changed."""
    trained = run("Adam", seed=7).train(1)
    before = (
        [{key: value.clone() for key, value in state.items()} for state in trained.state()],
        trained.optimizer.param_groups[0]["lr"],
    )

    def unchanged(equal):
        return (
            equal(trained.state(), before[0])
            and trained.optimizer.param_groups[0]["lr"] == before[1]
        )

    return trained.optimizer, unchanged


def with_header(data, change):
    """Return a file whose JSON header was changed."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def moved(header):
    name = next(name for name in header if name != "__metadata__")
    start, stop = header[name]["data_offsets"]
    header[name]["data_offsets"] = [start + (1 << 40), stop + (1 << 40)]


def overlapping(header):
    names = [name for name in header if name != "__metadata__" and header[name]["shape"] == [4, 3]]
    header[names[0]]["data_offsets"] = header[names[1]]["data_offsets"]


def newer(header):
    header["__metadata__"]["fdl.min_reader"] = "99"


def without_digest(header):
    del header["__metadata__"]["fdl.digest"]


def torch_zip(_):
    buffer = io.BytesIO()
    torch.save({"a": 1}, buffer)
    return buffer.getvalue()


def model_file(_):
    buffer = io.BytesIO()
    save_checkpoint(buffer, {"w": torch.zeros(2)})
    return buffer.getvalue()


def safetensors_file(_):
    from safetensors.torch import save

    return save({"w": torch.zeros(2)})


REJECTS = {
    "torch zip": (torch_zip, "not a state file", "zip archive"),
    "pickle": (lambda _: pickle.dumps({}), "not a state file", "pickle"),
    "plain safetensors": (safetensors_file, "not a state file", "plain safetensors"),
    "model checkpoint": (model_file, "not a state file", "load_checkpoint"),
    "rust checkpoint": (lambda _: b"FDLC" + b"\1\0\0\0" * 20, "not a state file", "Rust original"),
    "headerless": (
        lambda _: b"\2\0\0\0" + b"\0\0\0\0\0\0\xe0\x3f" * 9,
        "not a state file",
        "migrate_optim",
    ),
    "empty": (lambda _: b"", "truncated", "at least 9 bytes"),
    "header cut": (lambda data: data[:100], "truncated", "header alone"),
    "data cut": (lambda data: data[:-1], "truncated", "describes"),
    "trailing": (lambda data: data + b"\0", "trailing bytes", ""),
    "newer": (lambda data: with_header(data, newer), "newer version", "99"),
    "digest": (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "digest mismatch", ""),
    "no digest": (lambda data: with_header(data, without_digest), "digest mismatch", ""),
    "huge header": (
        lambda data: (1 << 40).to_bytes(8, "little") + data[8:],
        "header too large",
        "",
    ),
    "offsets": (lambda data: with_header(data, moved), "offsets outside the file", ""),
    "overlap": (lambda data: with_header(data, overlapping), "damaged header", "leaves a gap"),
    "header text": (lambda data: data[:9] + b"?" + data[10:], "damaged header", ""),
    "gzip cut": (lambda data: gzip.compress(data)[:-20], "damaged gzip", ""),
    "gzip trailing": (lambda data: gzip.compress(data + b"\0" * (3 << 20)), "trailing bytes", ""),
    "gzip data cut": (lambda data: gzip.compress(data[:-1]), "truncated", ""),
    "gzip of nothing": (lambda _: gzip.compress(b""), "truncated", ""),
    "gzip of zip": (lambda data: gzip.compress(torch_zip(data)), "not a state file", "zip"),
}


@pytest.mark.parametrize("name", REJECTS)
def test_each_wrong_file_has_its_reason_and_changes_nothing(name, small, target, equal, tmp_path):
    make, reason, detail = REJECTS[name]
    path = tmp_path / "wrong"
    path.write_bytes(make(small.read_bytes()))
    optimizer, unchanged = target
    with pytest.raises(StateFileError) as caught:
        load_state_file(optimizer, path)
    assert caught.value.reason == reason
    assert caught.value.path == str(path)
    assert str(path) in str(caught.value)
    assert detail in str(caught.value)
    assert unchanged(equal)


def test_a_file_that_is_not_there_says_so(target, tmp_path):
    with pytest.raises(StateFileError) as caught:
        load_state_file(target[0], tmp_path / "none.optim")
    assert caught.value.reason == "not found"
    with pytest.raises(StateFileError) as caught:
        load_state_file(target[0], tmp_path)
    assert caught.value.reason == "unreadable"


def mismatch(obj, path, **kwargs):
    with pytest.raises(StateMismatchError) as caught:
        load_state_file(obj, path, **kwargs)
    assert isinstance(caught.value, CheckpointError)
    return caught.value


def test_the_state_of_another_class_is_refused(run, small):
    error = mismatch(run("SGD").optimizer, small)
    assert error.reason == "wrong class"
    assert "state of Adam, not of SGD" in str(error)
    assert "strict=False" in str(mismatch(run("AdamW").optimizer, small))
    mismatch(run("SGD").optimizer, small, strict=False)


def test_the_state_of_another_kind_is_refused(run, small, tmp_path):
    error = mismatch(GradScaler(device="cpu"), small)
    assert error.reason == "wrong kind"
    save_state_file(StepDecay(0.1, 1, 0.5), tmp_path / "s")
    assert mismatch(run("Adam").optimizer, tmp_path / "s").reason == "wrong kind"


def test_a_scheduler_of_other_settings_is_refused(tmp_path):
    save_state_file(StepDecay(0.1, 1, 0.5), tmp_path / "s")
    error = mismatch(StepDecay(0.1, 2, 0.5), tmp_path / "s")
    assert error.reason == "state not accepted"
    assert "step_size" in str(error)


def test_all_shapes_that_differ_are_listed(run, small):
    other = run("Adam")
    pairs = [
        (n, torch.nn.Parameter(torch.zeros(5, *p.shape[1:])))
        for n, p in other.model.named_parameters()
    ]
    error = mismatch(optim.Adam(pairs), small)
    assert error.reason == "shape mismatch"
    assert "0.weight: [4, 3] in the file, [5, 3] here" in str(error)
    assert "2.bias: [2] in the file, [5] here" in str(error)
    mismatch(optim.Adam(pairs), small, strict=False)


def test_missing_and_extra_parameters_are_listed(run, small):
    other = run("Adam")
    pairs = [("0.weight", other.model[0].weight), ("new", other.model[2].bias)]
    error = mismatch(optim.Adam(pairs), small)
    assert error.reason == "other parameters"
    assert "only here: new" in str(error)
    assert "only in the file: 0.bias, 2.weight, 2.bias" in str(error)
    by_position = mismatch(optim.Adam(list(other.model.parameters())[:2]), small)
    assert "only in the file: 2.weight, 2.bias" in str(by_position)


def test_other_groups_are_refused(run, small):
    error = mismatch(run("Adam", groups=2).optimizer, small)
    assert error.reason == "other groups"


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_no_changed_byte_crashes_or_half_loads(packed, run, equal, tmp_path):
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(2))
    optimizer = optim.SGD([("w", parameter)], lr=0.1, momentum=0.9)
    parameter.grad = torch.ones(2)
    optimizer.step()
    path = tmp_path / ("s.gz" if packed else "s")
    save_state_file(optimizer, path)
    data = path.read_bytes()
    other = optim.SGD([("w", torch.nn.Parameter(torch.zeros(2)))], lr=0.5, momentum=0.5)
    wanted = optimizer.state[parameter]["momentum_buffer"]
    loads = 0
    for index in range(len(data)):
        for flip in (0xFF, 0x01, 0x20):
            changed = bytearray(data)
            changed[index] ^= flip
            before = dict(other.param_groups[0])
            try:
                load_state(other, io.BytesIO(changed))
            except StateFileError:
                assert other.param_groups[0] == before
                assert not other.state
                continue
            # Only what is not content may change unseen: padding, and bytes of the gzip head.
            assert torch.equal(
                other.state[other.param_groups[0]["params"][0]]["momentum_buffer"], wanted
            )
            assert other.lr == 0.1
            loads += 1
            other = optim.SGD([("w", torch.nn.Parameter(torch.zeros(2)))], lr=0.5, momentum=0.5)
    assert loads < (40 if packed else 12)


def sealed(document, tensors, **metadata):
    """Return a sound container with any state document."""
    buffer = io.BytesIO()
    extra = {"fdl.state": document if isinstance(document, str) else json.dumps(document)}
    save_checkpoint(buffer, tensors, hash="", kind="optimizer", extra=extra | metadata)
    return io.BytesIO(buffer.getvalue())


GOOD = {
    "class": "SGD",
    "groups": [{"settings": {"lr": 0.5}, "members": [0]}],
    "params": [{"name": "w", "shape": [2], "dtype": "F32"}],
    "state": [{"momentum_buffer": {"tensor": "m"}}],
}


def test_the_document_that_the_next_test_damages_is_good():
    optimizer = optim.SGD([("w", torch.nn.Parameter(torch.zeros(2)))], lr=0.1)
    load_state(optimizer, sealed(GOOD, {"m": torch.ones(2)}))
    assert optimizer.lr == 0.5


@pytest.mark.parametrize(
    "change",
    [
        "no json",
        [],
        {"class": 3},
        {"groups": None},
        {"groups": [{"settings": {"lr": 0.5}, "members": [0, 0]}]},
        {"groups": [{"settings": {"lr": 0.5}, "members": []}]},
        {"groups": [{"settings": {"lr": 0.5}, "members": ["0"]}]},
        {"groups": [{"settings": {"lr": "fast"}, "members": [0]}]},
        {"groups": [{"settings": {"lr": 0.5, "nesterov": 1}, "members": [0]}]},
        {"params": []},
        {"params": [{"name": 1, "shape": [2], "dtype": "F32"}]},
        {"params": [{"name": "w", "shape": ["a"], "dtype": "F32"}]},
        {"params": [{"name": "w", "shape": [2], "dtype": "X"}]},
        {"state": [{"momentum_buffer": {"tensor": "other"}}]},
        {"state": [{"momentum_buffer": {"code": "x"}}]},
        {"state": [{"momentum_buffer": {"a": 1, "b": 2}}]},
        {"state": [3]},
    ],
    ids=lambda value: str(value)[:90],
)
def test_forged_documents_are_typed_errors_and_change_nothing(change):
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = optim.SGD([("w", parameter)], lr=0.1)
    document = GOOD | change if isinstance(change, dict) else change
    with pytest.raises(StateFileError) as caught:
        load_state(optimizer, sealed(document, {"m": torch.ones(2)}))
    assert caught.value.reason == "damaged state"
    assert optimizer.lr == 0.1
    assert not optimizer.state
