"""No module reaches into another one: neither for its private members nor to write on its objects."""

import ast
from pathlib import Path

import pytest

import tracelearn

SOURCE = Path(tracelearn.__file__).parent
MODULES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))

# Where third parties leave no other way.
PRIVATE_OF_OTHERS = {
    "errors.py": "frames, so that a warning names the line of the user",
    "samples/scikit_learn.py": "what we use of scikit-learn beyond its public names",
}
# Objects that are made to be written on, by the module: scikit-learn's tags, and what stands in for an estimator in its checks.
WRITTEN_ON = {
    "cli/mistakes.py": {"warnings"},  # Python's own way to show them differently
    "estimators/base.py": {"tags"},
    "estimators/hierarchy.py": {"tags"},
    "features/base.py": {"tags"},
    "io/writing.py": {"failure"},
    "paper/estimators.py": {"tags"},
    "samples/scikit_learn.py": {"holder"},
    "search/estimators.py": {"tags"},
}


def tree_of(module):
    return ast.parse((SOURCE / module).read_text(encoding="utf-8"))


def own_names(tree):
    """Collect what a module defines: functions, classes, attributes of self, fields of classes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            names.add(node.attr)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            names.update(target.id for target in targets if isinstance(target, ast.Name))
    return names


def is_self(node):
    return isinstance(node, ast.Name) and node.id == "self"


def private_members(tree):
    """Find ``thing._name`` where the module does not define ``_name`` itself."""
    defined = own_names(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        is_super = isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "super"
        is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        if not (is_super or is_own or node.attr in defined):
            yield f"line {node.lineno}: .{node.attr}"


def foreign_writes(tree, module):
    """Find assignments to attributes of other objects than self, and the ways around them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "__dict__":
            yield f"line {node.lineno}: __dict__"
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setattr" and not is_self(node.args[0]):
            yield f"line {node.lineno}: setattr"
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del) and not is_self(node.value):
            owner = ast.unparse(node.value)
            if owner.partition(".")[0] not in WRITTEN_ON.get(module, ()):
                yield f"line {node.lineno}: {owner}.{node.attr} ="
        if isinstance(node, ast.Attribute) and node.attr == "__setattr__":
            yield f"line {node.lineno}: __setattr__"


def writers(tree):
    """List for each class the methods that write fitted attributes, whose names end in an underscore."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            methods = [method for method in node.body if isinstance(method, ast.FunctionDef)]
            yield (
                node.name,
                [
                    method.name
                    for method in methods
                    if any(
                        isinstance(attribute, ast.Attribute)
                        and isinstance(attribute.ctx, ast.Store)
                        and is_self(attribute.value)
                        and attribute.attr.endswith("_")
                        and not attribute.attr.startswith("_")
                        for attribute in ast.walk(method)
                    )
                ],
            )


@pytest.mark.parametrize("module", MODULES)
def test_a_module_uses_no_private_member_of_another(module):
    if module not in PRIVATE_OF_OTHERS:
        assert list(private_members(tree_of(module))) == []


@pytest.mark.parametrize("module", MODULES)
def test_a_module_writes_on_no_object_but_its_own(module):
    assert list(foreign_writes(tree_of(module), module)) == []


@pytest.mark.parametrize("module", MODULES)
def test_fitted_attributes_of_a_class_are_written_by_one_method(module):
    assert [name for name, methods in writers(tree_of(module)) if len(methods) > 1] == []


def test_the_contract_notices_what_it_forbids():
    guilty = ast.parse(
        "def use(self, model):\n    model._solution = 1\n    model.__dict__.clear()\n    setattr(model, 'a', 1)\n"
        "    self.model.alpha = 1\n    (self.a, model.b) = 1, 2\n    object.__setattr__(model, 'a', 1)\n    del model.alpha\n"
        "    for model.k in range(3):\n        self.own = 1\n"
    )
    assert len(list(private_members(guilty))) == 1
    assert len(list(foreign_writes(guilty, "guilty.py"))) == 8
    both = ast.parse(
        "class Model:\n    def fit(self):\n        self.coef_ = 1\n    def predict(self):\n        self.n_, self.x = 1, 2\n"
    )
    assert dict(writers(both)) == {"Model": ["fit", "predict"]}
