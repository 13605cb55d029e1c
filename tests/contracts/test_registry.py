"""Nothing public escapes the contracts: what the package offers by name is what its modules export."""

import importlib
import inspect
import pkgutil

import pytest

import tracelearn
from tracelearn import penalties, solvers
from tracelearn.losses import LOSSES, Loss
from tracelearn.penalties import ATOMS, PENALTIES, Atom


def _public_members():
    for info in pkgutil.walk_packages(tracelearn.__path__, "tracelearn."):
        if info.name.split(".")[1] in {"losses", "penalties", "problems", "solvers", "arrays", "moments"}:
            module = importlib.import_module(info.name)
            for name in getattr(module, "__all__", ()):
                yield getattr(module, name)


def _returns(member, annotation):
    return inspect.isfunction(member) and inspect.signature(member).return_annotation == annotation


@pytest.mark.parametrize(("kind", "known"), [(Loss, LOSSES), (Atom, ATOMS)])
def test_every_public_loss_and_atom_is_offered_by_its_name(kind, known):
    found = {one for one in _public_members() if inspect.isclass(one) and issubclass(one, kind) and one is not kind}
    assert found
    assert found == set(known.values())
    assert {one.name: one for one in found} == known


def test_every_penalty_answers_all_that_solvers_ask():
    asked = {name for name, method in vars(penalties.Penalty).items() if not name.startswith("_") and callable(method)}
    assert asked
    for one in (penalties.Overlap, penalties.Latent, penalties.Blocks):
        assert asked <= set(dir(one))
    for name in PENALTIES:
        assert asked <= set(dir(penalties.as_penalty(name, (3, 4, 2))))


def test_every_public_solver_is_offered_by_its_name():
    found = {member for member in _public_members() if _returns(member, "Solution")}
    assert found
    assert found == set(solvers.SOLVERS.values())
