"""Nothing public escapes the contracts."""

import importlib
import inspect
import pkgutil

import registry

import tracelearn
from tracelearn import penalties, solvers
from tracelearn.solvers import prox

# Above the numerical core: these have registries of their own, and optional dependencies.
_EDGE = {"cli", "estimators", "reproduce"}


def _public_members():
    for info in pkgutil.iter_modules(tracelearn.__path__):
        if info.name in _EDGE:
            continue
        module = importlib.import_module(f"tracelearn.{info.name}")
        for name in getattr(module, "__all__", ()):
            yield name, getattr(module, name)


def _looks_like_a_penalty(member) -> bool:
    needed = [name for name, method in vars(penalties.Penalty).items() if not name.startswith("_") and callable(method)]
    return inspect.isclass(member) and member is not penalties.Penalty and all(hasattr(member, n) for n in needed)


def _returns(member, annotation: str) -> bool:
    return inspect.isfunction(member) and inspect.signature(member).return_annotation == annotation


def test_every_public_penalty_is_under_contract():
    found = {member for _, member in _public_members() if _looks_like_a_penalty(member)}
    assert found
    assert found == set(registry.PENALTIES.values()) == set(penalties.PENALTIES.values())


def test_every_public_solver_is_under_contract():
    found = {member for _, member in _public_members() if _returns(member, "Solution")}
    assert found
    assert found == set((registry.SOLVERS | registry.DATA_SOLVERS).values()) == set(solvers.SOLVERS.values())


def test_every_public_proximal_method_is_under_contract():
    found = {member for _, member in _public_members() if _returns(member, "tuple[Array, Split]")}
    assert found
    assert found == set(registry.PROXES.values()) == set(prox.PROXES.values())


def test_users_and_contracts_call_things_by_the_same_names():
    assert penalties.PENALTIES == registry.PENALTIES
    assert solvers.SOLVERS == registry.SOLVERS | registry.DATA_SOLVERS
    assert prox.PROXES == registry.PROXES
