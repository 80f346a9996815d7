"""What ``tools/fuzz.py`` tries inputs on: each target reads a folder of files and raises nothing but BreadthError."""

from __future__ import annotations

import asyncio
import shutil
import zlib
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import orjson

from breadth.base.errors import BreadthError, ServerError
from breadth.doctor.collect import collect_evidence
from breadth.doctor.diagnosis import diagnose_run
from breadth.doctor.overview import overview
from breadth.doctor.page import doctor_page, to_json
from breadth.inference.policy import Policy
from breadth.report.html_page import render_html
from breadth.report.jsonable import to_jsonable
from breadth.runs.importer import all_importers, recognise
from breadth.runs.importing import import_files
from breadth.runs.reader import Run
from breadth.testing.importers import check_records

Target = Callable[[Path], None]
"""Reads one input, a folder; raises BreadthError when it is refused in words."""
IMPORT_SHARE, RENDER_SHARE = 16, 4
"""One file in so many is also imported into a folder and opened, one diagnosis in so many is rendered as HTML."""
SHOW_SHARE, DIAGNOSIS_SHARE = 32, 100
"""One run folder in so many is shown, one in so many is diagnosed: that costs ten times what reading it costs."""


def files_of(folder: Path) -> list[Path]:
    """Return the files of an input."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def is_chosen(folder: Path, share: int) -> bool:
    """Choose one input in so many by its content, so that a replay does the same."""
    checksum = 0
    for path in files_of(folder):
        checksum = zlib.crc32(path.read_bytes(), checksum)
    return checksum % share == 0


def read_with_importers(folder: Path) -> None:
    """Recognise a file, read it, and check the records; a part of them is imported and opened too."""
    for path in files_of(folder):
        found = recognise(path, all_importers())
        refused: BreadthError | None = None
        try:
            check_records(found.importer.read(path, found.kind))
        except BreadthError as error:
            refused = error
        if is_chosen(folder, IMPORT_SHARE):
            target = folder / "imported"
            try:
                import_files([path], target)
                read_run(target)
            finally:
                shutil.rmtree(target, ignore_errors=True)
        if refused is not None:
            raise refused


def read_as_configuration(folder: Path) -> None:
    """Hand a file to the doctor, and render what it says; a TOML file is read as a chain and as a policy too."""
    from breadth.training import Chain  # torch takes seconds to load

    for path in files_of(folder):
        if path.suffix == ".toml":
            for read in (Chain.load, lambda place: Policy.parse(str(place))):
                try:
                    read(path)
                except BreadthError:
                    continue
        diagnose_and_render(path, folder.parent / "imported")


def diagnose_and_render(path: Path, work_folder: Path) -> None:
    """Hand a file or a folder to the doctor, and render what it says."""
    collected = collect_evidence([path], work_folder)
    diagnoses = [diagnose_run(case) for case in collected.cases]
    orjson.dumps(to_json(diagnoses, collected))
    page = doctor_page(diagnoses, collected)
    if is_chosen(path.parent, RENDER_SHARE):
        render_html(page)


def read_run_folder(folder: Path) -> None:
    """Read a run folder; a part of them is shown and diagnosed too."""
    read_run(folder)
    if is_chosen(folder, SHOW_SHARE):
        page = overview(Run.open(folder))
        orjson.dumps(to_jsonable(page))
        render_html(page)
    if is_chosen(folder, DIAGNOSIS_SHARE):
        diagnose_and_render(folder, folder.parent / "unused")


def read_run(folder: Path) -> None:
    """Open a run folder, and read every metric and every row."""
    run = Run.open(folder)
    for split in ("train", "eval"):
        for name in run.metric_names(split):
            run.series(name, split)
    run.query("SELECT count(*) FROM metrics")
    if run.rollout_files:
        run.query("SELECT * FROM rollouts")
    if run.has_problems:
        run.query("SELECT * FROM problems")


class SharedDatabase:
    """Replaces ``duckdb.connect``: opening a database takes 30 ms, attaching an empty catalogue to one takes none."""

    def __init__(self) -> None:
        import duckdb

        self._connect, self._count = duckdb.connect, 0
        self._shared: Any = None
        duckdb.connect = self.open

    def open(self, *arguments: Any, **settings: Any) -> Any:
        """Return the one connection with nothing in it; a new one where a fatal error has ended the last."""
        import duckdb

        if self._shared is not None:
            self._count += 1
            try:
                self._shared.execute(f"ATTACH ':memory:' AS fuzz{self._count}; USE fuzz{self._count};")
                self._shared.execute(f"DETACH DATABASE IF EXISTS fuzz{self._count - 1}")
            except duckdb.Error:
                self._shared = None
        if self._shared is None:
            self._shared = self._connect(*arguments, **settings)
        return self._shared


def share_database(target: Target) -> Callable[[], Target]:
    """Make a target whose runs share one database."""

    def build() -> Target:
        import duckdb

        if not isinstance(getattr(duckdb.connect, "__self__", None), SharedDatabase):
            SharedDatabase()
        return target

    return build


class ProxyBodies:
    """Reads request bodies as the proxy does, up to what would be sent to the upstream; no socket is opened."""

    def __init__(self) -> None:
        from breadth.runtime.proxy.proxy import Proxy
        from breadth.runtime.proxy.routing import Policies
        from breadth.runtime.samplers.openai import OpenAISampler

        async def refuse() -> list[str]:
            raise ServerError("There is no upstream.", "None is needed here.")

        self._loop = asyncio.new_event_loop()

        async def build() -> Proxy:
            policies = Policies.parse("adaptive-vote", ["careful=vote,n=5"])
            names = {spec.name for spec in fields(policies)}
            allowed: dict[str, Any] = dict.fromkeys({"client_policies"} & names, True)  # they are to be read too
            return Proxy(OpenAISampler("http://127.0.0.1:9"), replace(policies, **allowed))

        self._proxy = self._loop.run_until_complete(build())
        self._proxy.models.fetch = refuse

    def __call__(self, folder: Path) -> None:
        """Read each file as the body of a chat and of a plain completion."""
        from breadth.runtime.dialect import CHAT_PATH, COMPLETIONS_PATH
        from breadth.runtime.proxy.errors import ApiError

        refused = 0
        for path in files_of(folder):
            for page in (CHAT_PATH, COMPLETIONS_PATH):
                try:
                    self._loop.run_until_complete(self._read(page, path.read_bytes()))
                except ApiError as error:
                    if not 400 <= error.status < 500:
                        raise
                    refused += 1
        if refused == 2:
            raise BreadthError("Both kinds of request were refused.", "None is needed.")

    async def _read(self, page: str, body: bytes) -> None:
        from breadth.runtime.proxy.client_request import read_request
        from breadth.runtime.proxy.errors import to_api_error
        from breadth.runtime.proxy.passthrough import upstream_body
        from breadth.runtime.solve_context import estimate_prompt_tokens

        proxy = self._proxy
        try:
            call = read_request(page, body)
            chosen, model = await proxy.choose(call)
            proxy.budget(call, chosen)
            estimate_prompt_tokens(call.prompt or "", "")
            policy = chosen.policy
            if chosen.is_single or call.passthrough_reason:
                sent: Any = upstream_body(call, chosen, model, proxy.sampler.dialect, 16)
            else:
                sampling = call.merge_sampling(policy.sampling)
                task = call.to_task(sampling, policy.reading, model=model, system=policy.system, seed=1)
                sent = {**task.options, **proxy.sampler.dialect.sampling_fields(task.sampling)}
            orjson.dumps(sent)
        except BreadthError as error:
            raise to_api_error(error, []) from error


TARGETS: dict[str, Callable[[], Target]] = {
    "importers": share_database(read_with_importers),
    "configs": share_database(read_as_configuration),
    "runs": share_database(read_run_folder),
    "proxy": ProxyBodies,
}
"""Name -> makes the target."""
