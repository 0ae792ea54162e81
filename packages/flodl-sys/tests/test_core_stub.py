"""The stub ``_core.pyi`` against the module that was built: the same names, the same parameters."""

import ast
import inspect
from pathlib import Path

import pytest

import flodl_sys
from flodl_sys import native

pytestmark = pytest.mark.usefixtures("native")

STUB = ast.parse((Path(flodl_sys.__file__).parent / "_core.pyi").read_text())


def functions(nodes):
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}


def public(thing):
    return {name for name in vars(thing) if not name.startswith("_")}


def built_signature(function):
    """The ``def`` line that pybind11 writes as the first line of a docstring, parsed."""
    (line, *_) = inspect.getdoc(function).splitlines()
    (node,) = ast.parse(f"def {line}: ...").body
    return node


def parameters(node):
    return [argument.arg for argument in node.args.args], len(node.args.defaults)


STUB_CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
METHODS = [(owner, name) for owner, node in STUB_CLASSES.items() for name in functions(node.body)]


def test_the_module_has_the_names_of_the_stub():
    constants = {node.target.id for node in STUB.body if isinstance(node, ast.AnnAssign)}
    assert public(native.core) == set(functions(STUB.body)) | constants | set(STUB_CLASSES)


@pytest.mark.parametrize("owner", STUB_CLASSES)
def test_a_class_has_the_names_of_the_stub(owner):
    assert public(getattr(native.core, owner)) == set(functions(STUB_CLASSES[owner].body))


@pytest.mark.parametrize("name", functions(STUB.body))
def test_a_function_has_the_parameters_of_the_stub(name):
    built = built_signature(getattr(native.core, name))
    assert parameters(built) == parameters(functions(STUB.body)[name])


@pytest.mark.parametrize(("owner", "name"), METHODS)
def test_a_method_has_the_parameters_of_the_stub(owner, name):
    member = vars(getattr(native.core, owner))[name]
    stub = functions(STUB_CLASSES[owner].body)[name]
    decorators = [decorator.id for decorator in stub.decorator_list]
    kinds = [kind for kind in (property, staticmethod) if isinstance(member, kind)]
    assert decorators == [kind.__name__ for kind in kinds]
    if not isinstance(member, property):
        built = built_signature(getattr(member, "__func__", member))
        assert parameters(built) == parameters(stub)
