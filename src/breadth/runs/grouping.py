"""Which files make up one run, and names that no two runs share."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, count
from pathlib import Path

from breadth.runs.importer import RecognisedFile
from breadth.runs.importing import drop_contained_files
from breadth.runs.paths import CHECKPOINT_FOLDER, DEFAULT_RUN_NAME, GENERIC_STEMS, is_folder, source_name

LOG_KINDS = frozenset({"trainer state", "log history", "console log", "notebook", "file log", "metrics"})
"""Kinds of file that each hold a whole run, so two of them are two runs; tables of metrics count too."""


def is_log(file: RecognisedFile) -> bool:
    """Say whether a file is the log of a whole run."""
    return file.kind in LOG_KINDS or file.kind.endswith(" metrics")


def is_evaluation(file: RecognisedFile) -> bool:
    """Say whether a file is one evaluation: samples without a step of training."""
    return file.kind.endswith(" evaluation")


def group_by_run(files: Sequence[RecognisedFile]) -> list[tuple[str, list[RecognisedFile]]]:
    """Put the files of one run together, with its name.

    Every log and every evaluation is a run; other files go to the only log there is, or to the nearest one above them.
    """
    groups = join_logs(drop_contained_files([file for file in files if is_log(file)]))
    logs, alone = list(groups), defaultdict[Path, list[RecognisedFile]](list)
    for file in files:
        if is_evaluation(file):
            groups[file.path] = [file]
        elif not is_log(file):
            log_path = nearest_log(file.path, logs)
            (alone[file.path.parent] if log_path is None else groups[log_path]).append(file)
    join_validation(alone)
    groups |= {group[0].path if len(group) == 1 else folder: group for folder, group in alone.items()}
    return list(zip(name_sources(list(groups)), groups.values(), strict=True))


def join_validation(alone: dict[Path, list[RecognisedFile]]) -> None:
    """Put a trainer's dumps of validation together with its only dumps of training next to them: they are one run."""
    for folder in [folder for folder, group in alone.items() if all(file.kind == VALIDATION_KIND for file in group)]:
        siblings = [
            other
            for other, group in alone.items()
            if other != folder and other.parent == folder.parent and all(file.kind == TRAINING_KIND for file in group)
        ]
        if len(siblings) == 1:
            alone[folder.parent] = alone.pop(siblings[0]) + alone.pop(folder)


TRAINING_KIND, VALIDATION_KIND = "rollouts", "validation rollouts"
"""Kinds of the files of one run that a trainer writes into two folders."""


def join_logs(logs: Sequence[RecognisedFile]) -> dict[Path, list[RecognisedFile]]:
    """Return the logs of each run by the path that names it.

    A trainer's console log next to the state it saved is the same run logged twice; two logs of a kind are two runs.
    """
    together: dict[tuple[Path, str], list[RecognisedFile]] = defaultdict(list)
    for log in logs:
        folder = log.path.parent
        own = folder.parent if CHECKPOINT_FOLDER.fullmatch(folder.name) else folder
        together[own, log.importer.trainer].append(log)
    groups: dict[Path, list[RecognisedFile]] = {}
    for (folder, _), group in together.items():
        kinds = {log.kind for log in group}
        if len(group) > 1 and len(kinds) == len(group) and kinds <= LOG_KINDS:
            groups[folder] = group
        else:
            groups |= {log.path: [log] for log in group}
    return groups


MAX_NAME_PARTS = 6
"""Parts of a path that tell runs apart at most."""


def name_sources(paths: Sequence[Path]) -> list[str]:
    """Return what people call the run of each file; those of one name by more of their paths."""
    names = [source_name(path) for path in paths]
    for depth in range(2, MAX_NAME_PARTS):
        shared = {name for name, times in Counter(names).items() if times > 1}
        if not shared:
            break
        longer = (longer_name(path, depth) for path in paths)
        names = [long if name in shared else name for name, long in zip(names, longer, strict=True)]
    return names


def longer_name(path: Path, parts: int) -> str:
    """Return the last parts of a path; of a file that every run has, those of its folder."""
    named = path.parent if path.stem in GENERIC_STEMS and not is_folder(path) else path.with_suffix("")
    return "/".join(named.parts[-parts:])


def nearest_log(path: Path, logs: Sequence[Path]) -> Path | None:
    """Return the only log, or the one that shares the deepest folder with a file; None where two do."""
    if len(logs) == 1:
        return logs[0]
    for folder in path.parents:
        here = [log for log in logs if folder == log or folder in log.parents]
        if here:
            return here[0] if len(here) == 1 else None
    return None


def make_unique(names: Sequence[str], taken: Iterable[str] = ()) -> list[str]:
    """Return the names, with a number behind each that is taken already; capitals make no difference to a folder."""
    used = {name.casefold() for name in taken}
    unique = []
    for name in names:
        numbered = (f"{name}-{number}" for number in count(2))
        wanted = next(text for text in chain([name], numbered) if text.casefold() not in used)
        used.add(wanted.casefold())
        unique.append(wanted)
    return unique


MAX_FOLDER_NAME = 100
"""Characters of a folder's name."""


def folder_name(name: str) -> str:
    """Return a run's name as the name of a folder: no separators, no leading dot, not too long."""
    return re.sub(r"[^\w.=+-]+", "-", name).strip("-.")[:MAX_FOLDER_NAME] or DEFAULT_RUN_NAME
