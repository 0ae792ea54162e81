import errno
import io
import os
import resource
import signal

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from flodl.checkpoint import checkpoint_info, load_checkpoint, save_checkpoint
from flodl.checkpoint import content as content_module
from flodl.checkpoint.format import DTYPE_OF_NAME
from flodl.core.errors import CheckpointError


def names_in(folder):
    return [path.name for path in folder.iterdir()]


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def bits(tensor):
    return tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor.reshape(1)


@pytest.mark.parametrize("dtype", DTYPE_OF_NAME.values(), ids=DTYPE_OF_NAME)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_every_dtype_comes_back_bit_for_bit(tmp_path, dtype, suffix):
    raw = torch.arange(16, dtype=torch.uint8)
    value = raw.view(dtype) if dtype is not torch.bool else raw % 2 == 0
    path = tmp_path / f"a.fdl{suffix}"
    save_checkpoint(path, {"x": value, "empty": value[:0]})
    target = {"x": torch.zeros_like(value), "empty": torch.zeros_like(value[:0])}
    assert load_checkpoint(path, target).is_complete
    assert torch.equal(bits(target["x"]), bits(value))


def test_plain_safetensors_reads_the_file(tmp_path):
    source = model()
    save_checkpoint(tmp_path / "a.fdl", source)
    read = load_file(tmp_path / "a.fdl")
    assert read.keys() == source.state_dict().keys()
    assert all(torch.equal(read[name], value) for name, value in source.state_dict().items())


def test_views_and_scalars_are_stored_as_they_look(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "t": base.t(),
        "row": base[1],
        "scalar": torch.tensor(3.0),
        "conj": base.cfloat().conj(),
    }
    save_checkpoint(tmp_path / "a.fdl", tensors)
    read = load_file(tmp_path / "a.fdl")
    assert all(torch.equal(read[name], value.resolve_conj()) for name, value in tensors.items())


def test_equal_content_gives_equal_bytes(tmp_path):
    for name in ("a.fdl", "b.fdl", "a.fdl.gz", "b.fdl.gz"):
        save_checkpoint(tmp_path / name, model(), meta={"z": 1, "a": [2]}, label="m")
    assert (tmp_path / "a.fdl").read_bytes() == (tmp_path / "b.fdl").read_bytes()
    assert (tmp_path / "a.fdl.gz").read_bytes() == (tmp_path / "b.fdl.gz").read_bytes()


def test_tied_weights_are_stored_once_under_both_names(tmp_path):
    source = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    source[1].weight = source[0].weight
    save_checkpoint(tmp_path / "a.fdl", source)
    info = checkpoint_info(tmp_path / "a.fdl")
    assert info.aliases == {"1.weight": "0.weight"}
    assert "1.weight" not in info.tensors
    untied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    assert load_checkpoint(tmp_path / "a.fdl", untied).is_complete
    assert torch.equal(untied[1].weight, source[0].weight)


def test_metadata_tells_where_the_file_comes_from(tmp_path):
    save_checkpoint(tmp_path / "a.fdl", model(), "ab" * 32, label="net", meta={"epoch": 3})
    info = checkpoint_info(tmp_path / "a.fdl")
    assert (info.version, info.kind, info.hash, info.label) == (3, "model", "ab" * 32, "net")
    assert info.meta == {"epoch": 3}
    assert info.torch_version == torch.__version__
    assert info.buffers == ("1.num_batches_tracked", "1.running_mean", "1.running_var")


def test_open_file_takes_the_same_bytes(tmp_path):
    stream = io.BytesIO()
    save_checkpoint(stream, model())
    save_checkpoint(tmp_path / "a.fdl", model())
    assert stream.getvalue() == (tmp_path / "a.fdl").read_bytes()


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"x": 3}, "x: is no tensor but int"),
        ({"x": torch.empty(2, device="meta")}, "meta device"),
        ({"x": torch.zeros(2, dtype=torch.complex128)}, "complex128; storable are"),
        ({"x": torch.eye(2).to_sparse()}, "no plain dense tensor"),
    ],
)
def test_what_cannot_be_stored_is_named_and_no_file_made(tmp_path, tensors, words):
    with pytest.raises(CheckpointError, match=words):
        save_checkpoint(tmp_path / "a.fdl", tensors)
    assert names_in(tmp_path) == []


def test_lazy_parameters_need_a_forward_first(tmp_path):
    with pytest.raises(CheckpointError, match="run one forward first"):
        save_checkpoint(tmp_path / "a.fdl", nn.LazyLinear(3))


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({"a": float("nan")}, "JSON"),
        ({"a": object()}, "JSON"),
        ({"a": "x" * (1 << 20)}, "1048576 are possible"),
    ],
)
def test_meta_must_be_small_json(tmp_path, meta, words):
    with pytest.raises(CheckpointError, match=words):
        save_checkpoint(tmp_path / "a.fdl", model(), meta=meta)


def test_unwritable_places_are_explained(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    cases = {
        tmp_path / "file" / "a.fdl": r"Not a directory.*\n.*a file, not a folder",
        tmp_path / "no" / "a.fdl": r"No such file.*\n.*create the folder",
        tmp_path: r"Is a directory.*\n.*name a file",
    }
    for path, words in cases.items():
        with pytest.raises(CheckpointError, match=words) as caught:
            save_checkpoint(path, model())
        assert str(path) in str(caught.value)
        assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_file_size_limit_keeps_the_old_file(tmp_path, in_child, suffix):
    path = tmp_path / f"a.fdl{suffix}"
    save_checkpoint(path, model())
    before = path.read_bytes()

    def save_too_much():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        save_checkpoint(path, {"x": torch.randn(1_000_000)})

    code, said = in_child(save_too_much)
    assert code == 1
    assert said.startswith(f"CheckpointError: cannot write checkpoint {path}: File too large")
    assert "ulimit" in said
    assert path.read_bytes() == before
    assert names_in(tmp_path) == [path.name]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tiny file system needs root")
def test_full_disk_keeps_the_old_file(tmp_path, in_child):
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", os.fsencode(tmp_path), b"tmpfs", 0, b"size=200k") != 0:
        pytest.skip(f"mount failed: {os.strerror(ctypes.get_errno())}")
    try:
        path = tmp_path / "a.fdl"
        save_checkpoint(path, model())
        before = path.read_bytes()
        with pytest.raises(CheckpointError, match=r"No space left on device.*\n.*free space"):
            save_checkpoint(path, {"x": torch.randn(100_000)})
        assert path.read_bytes() == before
        assert names_in(tmp_path) == ["a.fdl"]
    finally:
        libc.umount(os.fsencode(tmp_path))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_interruption_in_the_middle_leaves_the_old_file(tmp_path, monkeypatch, error, suffix):
    path = tmp_path / f"a.fdl{suffix}"
    save_checkpoint(path, model())
    before = path.read_bytes()

    def stop(*_):
        raise error

    monkeypatch.setattr(content_module.Digest, "update", stop)
    with pytest.raises((KeyboardInterrupt, CheckpointError)):
        save_checkpoint(path, model(1))
    assert path.read_bytes() == before
    assert names_in(tmp_path) == [path.name]


@pytest.mark.parametrize("point", range(10))
def test_killed_process_leaves_a_whole_file(tmp_path, in_child, monkeypatch, point):
    path = tmp_path / "a.fdl"
    old, new = {"x": torch.zeros(600_000)}, {"x": torch.ones(600_000)}
    save_checkpoint(path, old)
    # Kill at one of the ten calls that a save of three chunks makes below.
    calls = iter(range(100))

    def dying(function):
        def call(*args, **kwargs):
            if next(calls) == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(content_module.Digest, "update", dying(content_module.Digest.update))
    monkeypatch.setattr(content_module, "header_bytes", dying(content_module.header_bytes))
    monkeypatch.setattr(os, "fsync", dying(os.fsync))
    monkeypatch.setattr(os, "replace", dying(os.replace))
    monkeypatch.setattr(os, "rename", dying(os.rename))
    code, _ = in_child(lambda: save_checkpoint(path, new))
    monkeypatch.undo()
    assert code in {0, -signal.SIGKILL}
    target = {"x": torch.full((600_000,), 5.0)}
    assert load_checkpoint(path, target).is_complete
    assert target["x"].unique().tolist() in ([0.0], [1.0])
    if code == 0:
        assert target["x"][0] == 1


def test_large_tensor_is_written_in_pieces(tmp_path, monkeypatch):
    sizes = []
    chunks = content_module._chunks_of

    def counting(tensor):
        for chunk in chunks(tensor):
            sizes.append(len(chunk))
            yield chunk

    monkeypatch.setattr(content_module, "_chunks_of", counting)
    save_checkpoint(tmp_path / "a.fdl", {"x": torch.zeros(1_000_000)})
    assert sum(sizes) == 4_000_000
    assert max(sizes) <= 1 << 20
