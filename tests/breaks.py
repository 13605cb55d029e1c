"""Takes mends back, one after the other, and sees that a test fails: ``python -m tests.breaks --out docs/trust/breaks.md``.

Each of these mistakes was made once and reproduced by an attack from outside (the number is its line in that report). A mend
whose test passes without it is not tested. Sources are changed in a copy; a passage that is not there any more is an error.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Break(NamedTuple):
    """A passage of the sources, what takes its place, and a test that must fail then."""

    line: int
    mistake: str
    file: str
    old: str
    new: str
    test: str


BREAKS = [
    Break(1, "a path ends once scores are worse", "search/search.py",
          "return progress(next(solved) * len(group.folds) * len(own) / (len(alphas) * C * F))", "return next(solved) > 8",
          "test_selection.py::test_a_path_goes_to_its_end_since_held_out_errors_have_several_minima"),
    Break(1, "scores of classes are judged by their size too", "search/search.py", "sy**2 / np.where(found, ss * yy, 1.0)",
          "(2.0 * sy - ss) / np.where(found, yy, 1.0)",
          "test_selection.py::test_the_criterion_is_the_squared_correlation_of_all_held_out_predictions"),
    Break(2, "a fold without a score counts", "search/search.py", "known = ~np.any(np.isnan(scores), axis=0)",
          "known = np.ones(scores.shape[1], bool)", "test_selection.py::test_a_fold_without_a_score_is_left_out_and_said"),
    Break(3, "forces that do not balance are free", "problems/sample_loss.py",
          "return value + imbalance * sizes, gradient + imbalance * length", "return value, gradient",
          "test_true_gaps.py::test_forces_that_do_not_balance_prove_no_more_than_the_optimum"),
    Break(4, "rounded weights keep the gap of the exact ones", "estimators/base.py",
          "if bool(xp.all(again.gap <= limit)):\n            found, coef = again, exact", "if True:\n            pass",
          "test_true_gaps.py::test_weights_of_single_precision_are_judged_as_they_are_handed_out"),
    Break(4, "so does a rounded intercept", "estimators/base.py", "short, found.gap + cost", "short, found.gap",
          "test_true_gaps.py::test_weights_of_single_precision_are_judged_as_they_are_handed_out"),
    Break(4, "weights of a path are rounded after they were certified", "search/path.py", "model._shaped(W, own) for",
          "model._shaped(W.astype(np.float32), own) for",
          "test_true_gaps.py::test_the_gaps_of_a_path_are_true_of_its_weights_in_single_precision_too"),
    Break(5, "chunks of Zarr may be younger than the opening", "samples/zarr.py", "if _changed_at(state) > self.newest:",
          "if False:", "test_sources.py::test_samples_that_change_while_they_are_read_are_refused"),
    Break(6, "alphas below zero are taken", "search/search.py", "np.isfinite(found) & (found >= 0)", "np.isfinite(found)",
          "test_path.py::test_alphas_that_are_no_strengths_are_refused_in_a_sentence"),
    Break(6, "ridges below zero are taken", "search/session.py",
          'read_strengths(0.0 if isinstance(options.ridges, str) else options.ridges, "ridges")',
          "np.atleast_1d(np.asarray(0.0 if isinstance(options.ridges, str) else options.ridges, dtype=float))",
          "test_selection.py::test_strengths_that_make_no_sense_are_refused_in_a_sentence"),
    Break(6, "a path goes to negative alphas", "search/search.py", " or not 0.0 < eps < 1.0:", ":",
          "test_path.py::test_a_grid_that_does_not_fall_to_a_share_above_zero_is_refused"),
    Break(6, "no mode weights are taken", "search/session.py", "    if not lists:\n", "    if False:\n",
          "test_selection.py::test_strengths_that_make_no_sense_are_refused_in_a_sentence"),
    Break(7, "a member is read each time it is named", "files/content.py",
          '"$array": lambda name, _, arrays, known: arrays[name],',
          '"$array": lambda name, _, arrays, known: arrays[name].copy(),',
          "test_files.py::test_a_member_that_is_named_often_is_read_once"),
    Break(7, "members may be larger than the file", "files/content.py", "stored and sum(sizes.values()) <= len(payload)",
          "stored or True", "test_files.py::test_a_hostile_payload_is_refused_before_it_costs_memory"),
    Break(8, "a label may have any length", "samples/source.py", "if longest > _LONGEST_LABEL:", "if False:",
          "test_sources.py::test_a_long_label_is_refused_before_it_fills_the_memory"),
    Break(8, "labels may fill the memory", "cli/shared.py", "16 * longest * count > available_memory()", "False",
          "test_cli_trust.py::test_labels_that_would_fill_the_memory_are_refused_by_every_command"),
    Break(9, "links, pipes and devices are followed", "samples/source.py",
          "if not stat.S_ISREG(state.st_mode) and not stat.S_ISDIR(state.st_mode):", "if False:",
          "test_sources.py::test_links_pipes_and_devices_in_a_store_are_refused_unread"),
    Break(9, "links in a file of MATLAB are followed", "samples/mat.py",
          "isinstance(file.get(name, getlink=True), h5py.HardLink) and ", "",
          "test_mat.py::test_links_to_other_files_are_not_followed"),
    Break(9, "the next part of epochs may be anything", "samples/mne.py", "if found and not (is_file",
          "if False and not (is_file",
          "test_recordings.py::test_a_next_part_that_is_no_file_next_to_the_first_is_refused_unread"),
    Break(9, "addresses of this machine are read as those of others", "samples/opening.py", 'if scheme in ("file", "local"):',
          "if False:", "test_places.py::test_an_address_of_this_machine_is_a_path_whose_links_are_refused"),
    Break(9, "a model may be a pipe", "files/header.py", "if place.exists() and not place.is_file() and not place.is_dir():",
          "if False:", "test_files.py::test_a_pipe_in_the_place_of_a_model_is_not_waited_for"),
    Break(9, "checkpoints may be links and pipes", "streaming/checkpoints.py", "not stat.S_ISREG(path.lstat().st_mode),",
          "False,", "test_streams.py::test_checkpoints_that_are_links_or_pipes_are_refused"),
    Break(9, "rows that were never written are read", "samples/source.py",
          "if claimed > _LARGE and claimed > _LARGEST_RATIO * stored:", "if False:",
          "test_sources.py::test_a_tiny_file_that_claims_many_rows_is_refused"),
    Break(10, "any estimator of scikit-learn is read", "files/content.py",
          "raise UnknownTypeError(name)\n    kind",
          "known = {name: getattr(import_module(name.rpartition('.')[0]), name.rpartition('.')[2])}\n    kind",
          "test_files.py::test_estimators_of_scikit_learn_are_read_where_they_are_trusted_only"),
    Break(10, "a replaced file gets other permissions", "files/models.py", "                os.chmod(temporary, mode)\n",
          "                pass\n", "test_files.py::test_a_file_that_is_replaced_keeps_its_permissions"),
    Break(11, "the terminal obeys labels", "cli/mistakes.py", "sign if sign.isprintable() else", "sign if True else",
          "test_cli_trust.py::test_escape_sequences_in_labels_never_reach_the_terminal"),
    Break(11, "labels are formulas", "cli/predict.py", "if value.startswith(_FORMULAS) else", "if False else",
          "test_cli_trust.py::test_no_label_is_a_formula_in_a_table"),
    Break(11, "names are markup", "cli/shared.py", "lines.add_row(text.Text(printable(name)),", "lines.add_row(printable(name),",
          "test_cli_trust.py::test_names_of_modes_are_no_markup"),
    Break(12, "only a whole name is a file", "cli/shared.py", 'part for name in (one, *one.split(",")) for part in',
          "part for name in (one,) for part in",
          "test_cli_trust.py::test_an_output_that_is_an_input_is_refused_whatever_the_force"),
    Break(12, "an output may be an input", "cli/shared.py", "within or same or out.resolve() == given.resolve(),",
          "False,", "test_cli_trust.py::test_an_output_that_is_an_input_is_refused_whatever_the_force"),
    Break(13, "an iterator is read in another thread", "samples/iterables.py", "ahead=False", "ahead=True",
          "test_iterables.py::test_an_iterator_may_belong_to_its_thread_as_the_cursor_of_a_database_does"),
    Break(14, "any last solution is started from", "estimators/base.py",
          'getattr(self, "_solved", ())[:3] == problem and same_place', 'hasattr(self, "_solution") and same_place',
          "test_estimators.py::test_three_classes_and_then_another_loss_are_started_from_nothing"),
    Break(14, "chunks of Dask have unknown sizes", "samples/execution.py", "X = X.compute_chunk_sizes()", "pass",
          "test_execution.py::test_chunks_of_unknown_size_and_empty_ones_are_welcome"),
    Break(14, "empty chunks are blocks", "samples/execution.py", " if size > 0]", "]",
          "test_execution.py::test_chunks_of_unknown_size_and_empty_ones_are_welcome"),
    Break(14, "a block must weigh something", "samples/checks.py", "    if not part:\n        check_total_weight(largest)\n",
          "    check_total_weight(largest)\n", "test_execution.py::test_a_block_may_weigh_nothing"),
    Break(14, "moments of another library are added as they are", "estimators/online.py",
          "moments = found.moved_to(like)", "moments = found",
          "test_classes.py::test_a_model_of_another_library_is_merged_into_one_of_numpy_and_the_other_way"),
    Break(14, "constant samples have rounding for a spread", "problems/sample_loss.py",
          "return bool(xp.any(mean**2 > 1e6 * (squares - mean**2)))", "return False",
          "test_true_gaps.py::test_samples_that_are_all_the_same_are_learned_at_once"),
    Break(14, "labels stay bytes", "cli/shared.py", ' if labels.dtype.kind == "S" else labels', " if False else labels",
          "test_cli_trust.py::test_labels_that_are_bytes_are_text"),
    Break(14, "parts of a model need not fit", "files/content.py", "    check_parts(made)\n", "",
          "test_files.py::test_a_model_whose_parts_do_not_fit_is_refused"),
    Break(15, "a forked child keeps the lock", "streaming/locks.py", "os.register_at_fork(after_in_child=_close_all)", "pass",
          "test_streams.py::test_a_lock_ends_with_the_process_that_is_killed_while_its_forked_child_lives"),
    Break(15, "the curve of a stream is copied", "streaming/checkpoints.py",
          "points = self._points if len(self._points) == self._length else self._points[: self._length]",
          "points = self._points[: self._length]", "test_streams.py::test_a_long_curve_is_not_copied_at_a_refresh"),
    # The properties that stand for these lines, with the few inputs of `make test-slow`.
    Break(1, "a path of our own alphas ends early", "search/search.py",
          "return progress(next(solved) * len(group.folds) * len(own) / (len(alphas) * C * F))",
          "return not given and next(solved) > 4",
          "properties/test_online_path_search_tree.py::test_a_search_is_never_worse_than_the_same_alphas_given_by_hand"),
    Break(4, "rounded weights keep the gap of the exact ones", "estimators/base.py",
          "if bool(xp.all(again.gap <= limit)):\n            found, coef = again, exact", "if True:\n            pass",
          "properties/test_true_gaps.py::test_no_gap_is_below_the_true_one"),
    Break(4, "weights of a path are rounded after they were certified", "search/path.py", "model._shaped(W, own) for",
          "model._shaped(W.astype(np.float32), own) for", "properties/test_true_gaps.py::test_no_gap_is_below_the_true_one"),
]  # fmt: skip


def tried(broken, folder):
    """Take one mend back in a copy of the sources; return the last line of its test."""
    shutil.rmtree(folder / "src", ignore_errors=True)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "src" / "tracelearn" / broken.file
    text = file.read_text()
    if text.count(broken.old) != 1:
        raise ValueError(
            f"Expected this passage once in {broken.file}, got it {text.count(broken.old)} times: {broken.old}"
        )
    file.write_text(text.replace(broken.old, broken.new))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-W",
        "ignore",
        "--no-header",
        "--tb=no",
        "-p",
        "no:cacheprovider",
    ]
    where = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [*command, f"tests/{broken.test}"],
            cwd=ROOT,
            env=where,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "does not end"
    return {0: "PASSES", 1: "fails"}.get(done.returncode, f"is not run: {done.stdout[-300:]}")


def main():
    """Run from the command line; the exit code is 1 if a test passes without its mend."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=None, help="file for the table")
    parser.add_argument("--line", type=int, default=None, help="try the mends of one line only")
    options = parser.parse_args()
    rows, bad = [], False
    with tempfile.TemporaryDirectory() as folder:
        for broken in BREAKS:
            if options.line in (None, broken.line):
                outcome = tried(broken, Path(folder))
                bad |= outcome not in ("fails", "does not end")
                test = broken.test.partition("::")[2]
                rows.append(f"| {broken.line} | {broken.mistake} | `{broken.file}` | `{test}` | {outcome} |")
                print(rows[-1], flush=True)  # noqa: T201
    if options.out:
        head = [
            "---",
            "orphan: true",
            "---",
            "",
            "# Mends that were taken back",
            "",
            "Each line of the attack on commit 2fbe118: the mistake that is made again, where, the test that is there",
            "for it, and what that test does then. Written by `python -m tests.breaks --out docs/trust/breaks.md`.",
            "",
            "| line | mistake | made in | test | which |",
            "|---|---|---|---|---|",
        ]
        options.out.write_text("\n".join([*head, *rows]) + "\n")
    sys.exit(int(bad))


if __name__ == "__main__":
    main()
