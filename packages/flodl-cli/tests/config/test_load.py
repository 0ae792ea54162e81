import pytest

from flodl_cli.config.load import load, spell_key_path
from flodl_cli.errors import ConfigError


def loaded(tmp_path, text, name="fdl.yml"):
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(file)


def test_data_is_plain_and_every_key_has_its_line(tmp_path):
    document = loaded(
        tmp_path,
        "# comment\ndescription: |\n  two\n  lines\ncommands:\n  test:\n    run: pytest\n"
        "    args: [a, 'b',\n      3]\n  other: null\ntraining: {lr: 1e-3, seed: 0x10}\n",
    )
    assert document.data == {
        "description": "two\nlines\n",
        "commands": {"test": {"run": "pytest", "args": ["a", "b", 3]}, "other": None},
        "training": {"lr": 0.001, "seed": 16},
    }
    assert type(document.data["training"]["lr"]) is float
    assert type(document.data["training"]["seed"]) is int
    assert type(document.data["description"]) is str
    assert document.lines["description",] == 2
    assert document.lines["commands", "test", "run"] == 7
    assert document.lines["commands", "test", "args", 2] == 9
    assert document.lines["commands", "other"] == 10
    assert document.lines["training", "seed"] == 11


def test_yaml_1_2_words_are_words(tmp_path):
    assert loaded(tmp_path, "options: {a: yes, b: on, c: true}\n").data["options"] == {
        "a": "yes",
        "b": "on",
        "c": True,
    }


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n"])
def test_empty_file_is_an_empty_manifest(tmp_path, text):
    assert loaded(tmp_path, text).data == {}


def test_json_with_tabs_is_read(tmp_path):
    text = '{\n\t"commands": {\n\t\t"test": {"run": "pytest"}\n\t}\n}\n'
    document = loaded(tmp_path, text, "fdl.json")
    assert document.data == {"commands": {"test": {"run": "pytest"}}}
    assert document.lines["commands", "test"] == 3


def test_merged_keys_take_the_line_of_the_map(tmp_path):
    document = loaded(tmp_path, "x: &x {run: a}\ny:\n  <<: *x\n")
    assert document.data["y"] == {"run": "a"}
    assert document.place(("y", "run")).line == 2


def test_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    assert loaded(tmp_path, b"\xef\xbb\xbfdescription: x\n").data == {"description": "x"}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "the key 'a' is given twice in one map"),
        ("a: b: c\n", 1, "mapping values are not allowed here"),
        ("a:\n  b: [1,\n", 3, "while parsing a flow node expected the node content"),
        ("a: *x\n", 1, "found undefined alias 'x'"),
        ("a: &x\n  b: *x\n", 2, "*x refers to what it stands in"),
        ("a: &x {b: [1, {c: *x}]}\n", 1, "*x refers to what it stands in"),
        ("a:\n  - &x [1,\n     *x]\n", 3, "*x refers to what it stands in"),
        ("&x a: 1\nb: &y {&x c: {d: *y}}\n", 2, "*y refers to what it stands in"),
        ("a: 1\n---\nb: 2\n", 2, "expected a single document in the stream"),
        ("- a\n", 1, "a manifest is a map of keys"),
        ("text\n", 1, "a manifest is a map of keys"),
        ("1: x\n", 1, "the key is 1, not text"),
        ("a: {null: x}\n", 1, "the key is null, not text"),
        ("true: x\n", 1, "the key is true, not text"),
        ("{a: 1}: x\n", 1, "the key is a map, not text"),
        ("? [a, b]\n: x\n", 1, "the key is a list, not text"),
        ("a: !tag x\n", 1, "the tag !tag has no meaning here"),
        ("a: !!binary aGVsbG8=\n", 1, "the tag !!binary has no meaning here"),
        ("a: !!set {b}\n", 1, "the tag !!set has no meaning here"),
        ("a: !!python/object:os.system x\n", 1, "the tag !!python/object:os.system has no"),
        ("a: 1\nb: !mine {c: 1}\n", 2, "the tag !mine has no meaning here"),
        ("a:\n  - !mine [1]\n", 2, "the tag !mine has no meaning here"),
        ('a: 1\nb: "x\\0y"\n', 2, "holds the character 0x00"),
        ("a: 1\nb:\n\tc: 1\n", 3, "while scanning for the next token found character '\\t'"),
        (b"a: x\nb: \xff\n", 2, "not UTF-8 text: byte 0xff"),
        (b"a: \x00\n", 1, "the character 0x00 has no place in YAML"),
    ],
)
def test_fault_has_a_line_and_a_reason(tmp_path, text, line, message):
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert caught.value.message.startswith(message)
    assert caught.value.line == line
    assert caught.value.file == str(tmp_path / "fdl.yml")
    assert caught.value.hint


def test_hint_fits_the_slip(tmp_path):
    slips = {"a:\n\tb: 1\n": "no tab there", "a: 1\na: 2\n": "keep one", "a: b: c\n": "quote text"}
    for text, hint in slips.items():
        with pytest.raises(ConfigError) as caught:
            loaded(tmp_path, text)
        assert hint in caught.value.hint


def test_tags_of_plain_yaml_are_followed(tmp_path):
    text = "a: !!str 5\nb: !!int '5'\nc: !!map {d: !!seq [!!float 1]}\n"
    assert loaded(tmp_path, text).data == {"a": "5", "b": 5, "c": {"d": [1.0]}}


def test_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_file_larger_than_any_manifest_is_refused_before_it_is_parsed(tmp_path):
    comment = b"# " + b"x" * 10_000 + b"\n"
    assert loaded(tmp_path, comment + b"a: 1\n").data == {"a": 1}
    with pytest.raises(ConfigError, match="larger than 1 MiB") as caught:
        loaded(tmp_path, b"# " + b"x" * (1 << 20))
    assert caught.value.hint


def test_an_anchor_within_its_namesake_can_be_repeated(tmp_path):
    assert loaded(tmp_path, "a: &x {b: &x 1, c: *x}\nd: *x\n").data == {
        "a": {"b": 1, "c": 1},
        "d": 1,
    }


def test_aliases_do_not_explode(tmp_path):
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    for i in range(1, 9):
        lines.append(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]")
    with pytest.raises(ConfigError, match="more than 100000 values") as caught:
        loaded(tmp_path, "\n".join(lines) + "\n")
    assert (caught.value.line, caught.value.key_path) == (5, "a4")  # those before: 12345 values


def test_key_path_is_spelled_as_people_do():
    assert spell_key_path(("commands", "x", "args", 0)) == "commands.x.args[0]"
    assert spell_key_path(()) == ""


def test_rare_characters_of_json_are_put_together(project):
    file = project.write(
        "fdl.json", '{"description": "\\ud83d\\ude00", "env": {"\\ud83d\\ude00": "x"}}'
    )
    data = load(file).data
    assert data == {"description": "\U0001f600", "env": {"\U0001f600": "x"}}
    broken = project.write("a.json", '{"description": "\\ud83d"}')
    with pytest.raises(ConfigError, match="half of a character"):
        load(broken)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("# one\n- a\n", 2, "a manifest is a map of keys"),
        ("a: x\n1: y\n", 2, "the key is 1, not text"),
        ("a: {}\nb: {2: y}\n", 2, "the key is 2, not text"),
        ("a: " + "{b: " * 3000 + "1" + "}" * 3000, 1, "nested deeper"),
        ("a: 1\nb:\n  " + "[" * 99 + "\n  " + "[" * 3000 + "]" * 3099, 4, "nested deeper"),
    ],
)
def test_what_is_no_manifest_is_said_with_its_line(tmp_path, text, line, said):
    with pytest.raises(ConfigError, match=said) as caught:
        loaded(tmp_path, text)
    assert (caught.value.line, caught.value.hint is not None) == (line, True)
