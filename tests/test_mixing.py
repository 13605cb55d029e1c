"""Anderson's mixing: it finds the fixed point of affine maps, and leaves alone what it must."""

import numpy as np

from tracelearn.penalties import Split
from tracelearn.solvers.mixing import Mixing, take_tensors


def state(rows):
    """A state of one term whose weights, parts and anchors are the same rows, without forces."""
    return rows, Split(rows[None], 0.0 * rows[None], rows[None])


def ends_of(maps, rho, count):
    """Go on from mixtures of affine maps; return the last end."""
    mixing, onward = Mixing(rho=rho), state(np.zeros((len(maps), 3)))
    for _ in range(count):
        end = state(np.stack([A @ w + b for (A, b), w in zip(maps, onward[0], strict=True)]))
        mixing, onward = mixing.onward(onward, end, rho)
    return mixing, onward


def affine_maps(rng, count):
    rotations = [np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(count)]
    return [(Q @ np.diag([0.9, 0.6, 0.2]) @ Q.T, rng.normal(size=3)) for Q in rotations]


def test_affine_maps_of_three_numbers_are_solved_by_five_mixed_blocks(rng):
    maps = affine_maps(rng, 2)
    _, (W, _) = ends_of(maps, np.ones(2), 5)
    for (A, b), w in zip(maps, W, strict=True):
        np.testing.assert_allclose(w, np.linalg.solve(np.eye(3) - A, b), rtol=1e-5)


def test_every_problem_has_shares_of_its_own(rng):
    maps, rho = affine_maps(rng, 2), np.ones(2)
    _, (together, _) = ends_of(maps, rho, 4)
    for k in range(2):
        _, (alone, _) = ends_of(maps[k : k + 1], rho[:1], 4)
        np.testing.assert_allclose(together[k], alone[0], rtol=1e-8)


def test_problems_that_are_left_go_on_with_what_they_remember(rng):
    maps, rho, left = affine_maps(rng, 2), np.ones(2), np.array([1])
    mixing, onward = ends_of(maps, rho, 3)
    alone, begun = ends_of(maps[1:], rho[:1], 3)
    rest = rho[left]
    mixing, onward = mixing.take(left, left, rho, rest), take_tensors(onward, left)
    (A, b), found = maps[1], []
    for memory, start, steps in ((mixing, onward, rest), (alone, begun, alone.rho)):
        end = state((A @ start[0][0] + b)[None])
        found.append(memory.onward(start, end, steps)[1][0])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-8)


def test_new_steps_begin_a_new_memory(rng):
    mixing, onward = ends_of(affine_maps(rng, 1), np.ones(1), 3)
    end = state(onward[0] + 1.0)
    after, begins = mixing.onward(onward, end, np.full(1, 2.0))
    assert after.ends == ()
    assert begins is end
    assert mixing.take(np.array([0]), np.array([0]), np.full(1, 2.0), np.ones(1)).ends == ()


def test_a_problem_that_moves_further_than_before_goes_on_unmixed():
    rho = np.ones(1)
    mixing, onward = Mixing(rho=rho), state(np.zeros((1, 2)))
    for end in ([1.0, 0.0], [1.5, 0.1], [4.0, 0.0]):
        last = state(onward[0] + np.array([end]))
        mixing, onward = mixing.onward(onward, last, rho)
    np.testing.assert_array_equal(onward[0], last[0])


def test_a_mixture_far_from_all_ends_is_not_trusted():
    rho = np.ones(1)
    mixing, onward = Mixing(rho=rho), state(np.zeros((1, 1)))
    for end in (1.0, 1.999):  # moves of 1 and 0.999: the fixed point would be at 1,000
        last = state(np.array([[end]]))
        mixing, onward = mixing.onward(onward, last, rho)
    np.testing.assert_array_equal(onward[0], last[0])
