import gzip
import pickle
import struct

import pytest
import torch

from flodl import optim
from flodl.checkpoint.migrate import migrate_optim_state_file
from flodl.checkpoint.optim import load_state_file, save_state_file
from flodl.core.errors import StateFileError

TAGS = {torch.float16: 1, torch.bfloat16: 2, torch.float32: 3, torch.float64: 4}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))


def tensor(value):
    """One tensor in the layout of the Rust original."""
    if value is None:
        return b"\0"
    raw = value.detach().contiguous().view(torch.uint8).numpy().tobytes()
    dims = b"".join(struct.pack("<q", size) for size in value.shape)
    head = b"\1" + struct.pack("<I", value.dim()) + dims
    return head + struct.pack("<BQ", TAGS[value.dtype], len(raw)) + raw


def groups(*ranges):
    return struct.pack("<I", len(ranges)) + b"".join(struct.pack("<dqq", *r) for r in ranges)


def moments(model, count):
    generator = torch.Generator().manual_seed(1)
    return [
        [torch.rand(p.shape, generator=generator) for _ in range(count)] for p in model.parameters()
    ]


def adam(model, values, *, steps=5, ranges=()):
    body = b"".join(tensor(m) + tensor(v) for m, v in values)
    return struct.pack("<Idq", len(values), 0.25, steps) + body + groups(*ranges)


NAMES = ["0.weight", "0.bias", "1.weight", "1.bias"]


@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_adam_states_of_the_rust_original_go_on(kind, packed, model, tmp_path):
    values = moments(model, 2)
    data = adam(model, values, ranges=[(0.5, 0, 1), (0.125, 1, 4)])
    data = struct.pack("<d", 0.03) + data if kind == "AdamW" else data
    (tmp_path / "old").write_bytes(gzip.compress(data) if packed else data)
    report = migrate_optim_state_file(
        tmp_path / "old", tmp_path / "new.optim", optimizer=kind, names=NAMES
    )
    assert (report.source_format, report.optimizer) == ("rust", kind)
    assert report.parameters == tuple(NAMES)
    pairs = list(model.named_parameters())
    optimizer = getattr(optim, kind)([{"params": pairs[:1]}, {"params": pairs[1:]}], eps=1e-5)
    load_state_file(optimizer, tmp_path / "new.optim")
    assert [group.lr for group in optimizer.groups] == [0.5, 0.125]
    group = optimizer.param_groups[0]
    assert group["eps"] == 1e-5  # the old file does not have it
    assert group["weight_decay"] == (0.03 if kind == "AdamW" else 0)
    for (_, parameter), (m, v) in zip(pairs, values, strict=True):
        state = optimizer.state[parameter]
        assert torch.equal(state["exp_avg"], m)
        assert torch.equal(state["exp_avg_sq"], v)
        assert state["step"] == 5
    for _, parameter in pairs:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def test_sgd_and_rmsprop_states_of_the_rust_original_go_on(model, tmp_path):
    velocities = [m for (m,) in moments(model, 1)]
    data = struct.pack("<Idd", 4, 0.25, 0.01) + b"".join(map(tensor, velocities)) + groups()
    (tmp_path / "sgd").write_bytes(data)
    migrate_optim_state_file(tmp_path / "sgd", tmp_path / "sgd.optim", optimizer=optim.SGD)
    sgd = optim.SGD(model.parameters(), momentum=0.9)
    load_state_file(sgd, tmp_path / "sgd.optim")
    assert (sgd.lr, sgd.param_groups[0]["weight_decay"]) == (0.25, 0.01)
    assert sgd.param_groups[0]["momentum"] == 0.9
    for parameter, velocity in zip(model.parameters(), velocities, strict=True):
        assert torch.equal(sgd.state[parameter]["momentum_buffer"], velocity)

    pairs = moments(model, 2)
    body = b"".join(tensor(v) + tensor(b) for v, b in pairs)
    settings = (0.25, 0.95, 1e-6, 0.02, 0.8)
    (tmp_path / "rms").write_bytes(struct.pack("<Iddddd", 4, *settings) + body + groups())
    rmsprop = optim.RMSprop(model.parameters())
    migrate_optim_state_file(tmp_path / "rms", tmp_path / "rms.optim", optimizer=rmsprop)
    load_state_file(rmsprop, tmp_path / "rms.optim")
    keys = ("lr", "alpha", "eps", "weight_decay", "momentum")
    assert tuple(rmsprop.param_groups[0][key] for key in keys) == settings
    for parameter, (average, buffer) in zip(model.parameters(), pairs, strict=True):
        assert torch.equal(rmsprop.state[parameter]["square_avg"], average)
        assert torch.equal(rmsprop.state[parameter]["momentum_buffer"], buffer)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    rmsprop.step()


def test_parameters_that_had_no_step_have_no_state(model, tmp_path):
    values = moments(model, 2)
    values[1] = [None, None]
    (tmp_path / "old").write_bytes(adam(model, values))
    report = migrate_optim_state_file(tmp_path / "old", tmp_path / "new", optimizer="Adam")
    assert report.without_state == ("1",)
    optimizer = optim.Adam(model.parameters())
    load_state_file(optimizer, tmp_path / "new")
    assert model[0].bias not in optimizer.state
    assert "1 without state" in str(report)


def test_every_cut_of_a_rust_file_is_a_typed_error(model, tmp_path):
    data = adam(model, moments(model, 2), ranges=[(0.5, 0, 4)])
    source = tmp_path / "old"
    for end in range(len(data)):
        source.write_bytes(data[:end])
        with pytest.raises(StateFileError):
            migrate_optim_state_file(source, tmp_path / "new", optimizer="Adam")
    assert not (tmp_path / "new").exists()


def flag(data):
    return data[:20] + b"\7" + data[21:]


def many_dims(data):
    return data[:21] + struct.pack("<I", 1 << 31) + data[25:]


def negative_size(data):
    return data[:25] + struct.pack("<q", -3) + data[33:]


def huge_size(data):
    return data[:25] + struct.pack("<q", 1 << 60) + data[33:]


def bad_dtype(data):
    return data[:41] + b"\x63" + data[42:]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data + b"\0", "trailing bytes"),
        (flag, "damaged state"),
        (many_dims, "damaged state"),
        (negative_size, "damaged state"),
        (huge_size, "damaged state"),
        (bad_dtype, "damaged state"),
    ],
    ids=["trailing", "flag", "dims", "negative", "huge", "dtype"],
)
def test_damaged_rust_files_have_their_reason(change, reason, model, tmp_path):
    (tmp_path / "old").write_bytes(change(adam(model, moments(model, 2))))
    with pytest.raises(StateFileError) as caught:
        migrate_optim_state_file(tmp_path / "old", tmp_path / "new", optimizer="Adam")
    assert caught.value.reason == reason
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "ranges", [[(0.1, 0, 3)], [(0.1, 0, 3), (0.1, 2, 4)], [(0.1, 1, 4)]], ids=str
)
def test_groups_must_hold_each_parameter_once(ranges, model, tmp_path):
    (tmp_path / "old").write_bytes(adam(model, moments(model, 2), ranges=ranges))
    with pytest.raises(StateFileError, match="do not hold 4 parameters once"):
        migrate_optim_state_file(tmp_path / "old", tmp_path / "new", optimizer="Adam")


def test_a_rust_file_needs_its_class_named(model, tmp_path):
    (tmp_path / "old").write_bytes(adam(model, moments(model, 2)))
    with pytest.raises(StateFileError, match='optimizer="Adam"') as caught:
        migrate_optim_state_file(tmp_path / "old", tmp_path / "new")
    assert caught.value.reason == "unknown class"
    with pytest.raises(StateFileError, match="saved no NAdam; it saved Adam, AdamW, RMSprop, SGD"):
        migrate_optim_state_file(tmp_path / "old", tmp_path / "new", optimizer="NAdam")


@pytest.mark.parametrize("named", [False, True], ids=["positions", "names"])
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam"])
def test_torch_states_go_on_and_tell_their_class(kind, named, model, tmp_path):
    source = model.named_parameters() if named else model.parameters()
    settings = {"momentum": 0.9} if kind == "SGD" else {}
    plain = getattr(torch.optim, kind)(source, lr=0.125, **settings)
    model(torch.ones(1, 3)).sum().backward()
    plain.step()
    torch.save(plain.state_dict(), tmp_path / "old.pt")
    report = migrate_optim_state_file(tmp_path / "old.pt", tmp_path / "new")
    assert (report.source_format, report.optimizer) == ("torch", kind)
    assert report.parameters == (tuple(NAMES) if named else ("0", "1", "2", "3"))
    optimizer = getattr(optim, kind)(model, lr=0.5, **settings)
    load_state_file(optimizer, tmp_path / "new")
    assert optimizer.lr == 0.125
    for parameter in model.parameters():
        for key, value in plain.state[parameter].items():
            assert torch.equal(optimizer.state[parameter][key], value), key


def test_a_class_that_torch_does_not_tell_must_be_named(model, tmp_path):
    plain = torch.optim.RAdam(model.parameters())
    torch.save(plain.state_dict(), tmp_path / "old.pt")
    with pytest.raises(StateFileError, match="pass optimizer="):
        migrate_optim_state_file(tmp_path / "old.pt", tmp_path / "new")
    migrate_optim_state_file(tmp_path / "old.pt", tmp_path / "new", optimizer=plain)
    load_state_file(optim.RAdam(model.parameters()), tmp_path / "new")


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


@pytest.mark.parametrize("zipped", [False, True], ids=["pickle", "zip"])
def test_code_in_a_torch_file_is_never_run(zipped, tmp_path, capsys):
    path = tmp_path / "old.pt"
    if zipped:
        torch.save({"state": Evil(), "param_groups": []}, path)
    else:
        path.write_bytes(pickle.dumps({"state": Evil(), "param_groups": []}, protocol=2))
    with pytest.raises(StateFileError) as caught:
        migrate_optim_state_file(path, tmp_path / "new")
    assert caught.value.reason == "unsafe or damaged torch file"
    assert capsys.readouterr().out == ""


def test_torch_files_that_are_no_optimizer_states_are_refused(model, tmp_path):
    torch.save(model.state_dict(), tmp_path / "model.pt")
    with pytest.raises(StateFileError) as caught:
        migrate_optim_state_file(tmp_path / "model.pt", tmp_path / "new")
    assert caught.value.reason == "not an optimizer state"


def test_files_of_this_format_are_renamed(model, tmp_path):
    optimizer = optim.Adam(model)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    save_state_file(optimizer, tmp_path / "old")
    report = migrate_optim_state_file(
        tmp_path / "old", tmp_path / "new.gz", rename={"0.weight": "first.weight"}
    )
    assert report.source_format == "flodl"
    assert report.renamed == (("0.weight", "first.weight"),)
    other = optim.Adam([("first.weight", model[0].weight), *list(model.named_parameters())[1:]])
    load_state_file(other, tmp_path / "new.gz")
    assert torch.equal(
        other.state[model[0].weight]["exp_avg"], optimizer.state[model[0].weight]["exp_avg"]
    )
    report = migrate_optim_state_file(tmp_path / "old", tmp_path / "new", rename=str.upper)
    assert len(report.renamed) == 4


def test_impossible_names_are_refused(model, tmp_path):
    (tmp_path / "old").write_bytes(adam(model, moments(model, 2)))

    def migrate(**kwargs):
        return migrate_optim_state_file(
            tmp_path / "old", tmp_path / "new", optimizer="Adam", **kwargs
        )

    with pytest.raises(ValueError, match="3 given, the file has 4"):
        migrate(names=["a", "b", "c"])
    with pytest.raises(ValueError, match="have no names"):
        migrate(rename={"a": "b"})
    with pytest.raises(ValueError, match="the name x"):
        migrate(names=NAMES, rename=lambda name: "x")
    with pytest.raises(ValueError, match="source and destination"):
        migrate_optim_state_file(tmp_path / "old", tmp_path / "." / "old", optimizer="Adam")
    assert not (tmp_path / "new").exists()


def test_a_source_that_is_not_there_or_damaged_says_so(tmp_path):
    with pytest.raises(StateFileError) as caught:
        migrate_optim_state_file(tmp_path / "none", tmp_path / "new")
    assert caught.value.reason == "not found"
    (tmp_path / "bad.gz").write_bytes(gzip.compress(b"abc" * 100)[:-9])
    with pytest.raises(StateFileError) as caught:
        migrate_optim_state_file(tmp_path / "bad.gz", tmp_path / "new", optimizer="Adam")
    assert caught.value.reason == "damaged gzip"


def test_a_scaler_is_no_optimizer(tmp_path):
    from flodl.nn import GradScaler

    save_state_file(GradScaler(device="cpu"), tmp_path / "s")
    with pytest.raises(StateFileError) as caught:
        migrate_optim_state_file(tmp_path / "s", tmp_path / "new")
    assert caught.value.reason == "wrong kind"
