import json

import pytest

from flodl_hf.commands import main


def run(capsys, *words):
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


def test_texts_are_classified(talking, capsys):
    folder, _ = talking("bert", "seqcls")
    code, out, _ = run(capsys, "classify", folder, "the fox", "a cat", "--json", "--top-k", 2)
    assert code == 0
    found = json.loads(out)
    assert [item["text"] for item in found] == ["the fox", "a cat"]
    assert all(len(item["scores"]) == 2 for item in found)
    code, out, _ = run(capsys, "classify", folder)
    assert code == 0
    assert out.count("LABEL_") == 9


def test_export_and_verify_agree(talking, capsys, tmp_path):
    folder, _ = talking("distilbert", "tokcls")
    code, out, _ = run(capsys, "export", "--hub", folder, "--out", tmp_path / "out", "--json")
    assert code == 0
    assert json.loads(out)["head"] == "tokcls"
    code, out, _ = run(capsys, "verify-export", tmp_path / "out", "--source", folder, "--json")
    assert code == 0
    assert json.loads(out)["passed"] is True
    code, out, err = run(capsys, "export", "--hub", folder, "--out", tmp_path / "out")
    assert code == 1
    assert "--force" in err
    code, out, _ = run(capsys, "verify-export-distilbert", tmp_path / "out", "--no-hub-source")
    assert code == 0
    assert "PASS keys" in out


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nothing"],
        ["export"],
        ["export", "--out", "x"],
        ["export", "--out", "x", "--hub", "a/b", "--checkpoint", "c"],
        ["export", "--out", "x", "--hub", "a/b", "--config", "c"],
        ["export", "--out", "x", "--checkpoint", "c", "--head", "qa"],
        ["verify-export", "x", "--hub-source", "a/b", "--no-hub-source"],
        ["verify-matrix", "--families", "gpt2"],
        ["verify-matrix", "--heads", "ner"],
    ],
)
def test_misuse_is_exit_code_two_with_the_usage(capsys, words):
    code, out, err = run(capsys, *words)
    assert code == 2
    assert "usage: fdl flodl-hf" in err
    assert out == ""


def test_failures_are_exit_code_one_with_one_message(capsys, tmp_path):
    for words in (
        ["classify", tmp_path],
        ["convert", "bert-base-uncased"],
        ["export", "--checkpoint", tmp_path / "x.fdl", "--out", tmp_path / "o"],
        ["verify-export", tmp_path],
    ):
        code, _, err = run(capsys, *words)
        assert code == 1
        assert err.startswith("fdl flodl-hf: ")


def test_part_of_the_matrix_passes(capsys):
    code, out, _ = run(
        capsys, "verify-matrix", "--offline", "--families", "bert,deberta-v2", "--heads", "mlm,qa"
    )
    assert code == 0
    assert "| bert | PASS" in out
    assert "4 passed, 0 failed" in out


def test_the_whole_matrix_passes(capsys):
    code, out, _ = run(capsys, "verify-matrix", "--offline", "--json")
    found = json.loads(out)
    assert len(found) == 30
    assert [item for item in found if not item["passed"]] == []
    assert code == 0


def test_a_cell_that_fails_does_not_stop_the_others(capsys, monkeypatch, tmp_path):
    from flodl_hf.verify import matrix

    true = matrix.write_reference

    def write(sample, folder):
        if sample.head == "qa":
            raise OSError("disk full")
        return true(sample, folder)

    monkeypatch.setattr(matrix, "write_reference", write)
    code, out, _ = run(
        capsys,
        *("verify-matrix", "--offline", "--families", "bert", "--heads", "qa,base"),
        *("--staging-dir", tmp_path, "--keep"),
    )
    assert code == 1
    assert "FAIL bert-qa OSError: disk full" in out
    assert "1 passed, 1 failed" in out
    assert (tmp_path / "bert-base/export/model.safetensors").is_file()


def test_the_help_loads_nothing_heavy():
    import subprocess
    import sys

    program = (
        "import sys; from flodl_hf.commands import main; main(['--help']);"
        "heavy = {'torch', 'tokenizers', 'huggingface_hub', 'transformers'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().endswith("[]")
    assert "verify-matrix" in done.stdout
