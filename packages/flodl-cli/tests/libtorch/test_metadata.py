import pytest

from flodl_cli.errors import LibtorchError
from flodl_cli.libtorch.metadata import (
    Metadata,
    change_metadata,
    read_metadata,
    replace_text,
    write_metadata,
)


def test_what_is_written_is_read_back(tmp_path):
    metadata = Metadata(cuda="12.8", torch="2.10.0", archs="6.1 12.0", source="precompiled")
    write_metadata(tmp_path, metadata)
    assert read_metadata(tmp_path) == metadata
    assert (tmp_path / ".arch").read_text().startswith("cuda=12.8\ntorch=2.10.0\n")


def test_unknown_keys_and_comments_are_left_out(tmp_path):
    (tmp_path / ".arch").write_text("# made by hand\ncuda = 12.8\nfuture=1\n\nnot a pair\n")
    assert read_metadata(tmp_path) == Metadata(cuda="12.8")


@pytest.mark.parametrize(
    ("cuda", "rocm", "vendor"),
    [("12.8", "", "nvidia"), ("none", "7.1", "amd"), ("none", "", "cpu"), ("", "", "cpu")],
)
def test_vendor_is_derived_and_not_from_cuda_alone(cuda, rocm, vendor):
    assert Metadata(cuda=cuda, rocm=rocm).vendor == vendor


def test_word_cpu_is_no_architecture():
    assert Metadata(archs="cpu").arch_tokens == ()
    assert Metadata(archs="7.5 8.0").arch_tokens == ("7.5", "8.0")


def test_change_keeps_the_other_keys(tmp_path):
    write_metadata(tmp_path, Metadata(torch="2.10.0", archs="7.5"))
    assert change_metadata(tmp_path, archs="8.0") == Metadata(torch="2.10.0", archs="8.0")
    assert read_metadata(tmp_path).archs == "8.0"


def test_missing_file_is_an_error(tmp_path):
    with pytest.raises(LibtorchError, match=r"\.arch cannot be read"):
        read_metadata(tmp_path)


def test_failed_write_leaves_nothing_behind(tmp_path):
    (tmp_path / "x").mkdir()
    with pytest.raises(LibtorchError, match="cannot be written"):
        replace_text(tmp_path / "x", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
