"""Checks and prepares a pipeline before it runs: its graph, its topics, a refresh.

This needs the broker and the tables but not Spark, so a mistake is reported within a second.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headwater.client.admin import BlockingAdmin, NewTopic
from headwater.config.keys import nearest
from headwater.pipelines.declaring.declare import Declarations, Flow, Project
from headwater.pipelines.declaring.graph import Problem, check
from headwater.pipelines.declaring.upgrade import (
    FlowChange,
    describe_change,
    fingerprint,
    work_digest,
)
from headwater.pipelines.running.checkpoints import REFRESHED, UNFINISHED, Checkpoints
from headwater.pipelines.running.consistency import (
    TOPIC_IDS,
    WORK,
    filled_elsewhere,
    stale_checkpoint,
    table_mismatch,
    topic_mismatch,
    unknown_rows,
)
from headwater.pipelines.running.dataset_reader import table_target
from headwater.pipelines.running.run_plan import is_view, refresh_needs
from headwater.pipelines.tables.table import Table, TableChange, open_table
from headwater.pipelines.targets import Target, parse_target
from headwater.pipelines.topic_sink.ledger import Ledger

REFRESHED_BY = "headwater-refresh"
"""The application that empties tables for a refresh."""
_GONE = "gone"
"""The key that marks a flow which the project did not have in the last run."""


class NotReadyError(Exception):
    """A pipeline cannot run: one line for each reason. Nothing was changed."""

    def __init__(self, lines: Iterable[object]) -> None:
        self.lines = [str(line) for line in lines]
        super().__init__("; ".join(self.lines))


def prepare_run(project: Project, refreshed: Sequence[str] = ()) -> list[str]:
    """Check everything, then prepare the run; return what was done, as lines.

    Raises NotReadyError if the graph has problems, if the code has changed in a way that checkpoints
    or tables do not allow, or if a refresh is incomplete.
    """
    refreshed = [*refreshed, *unfinished_refreshes(project)]
    found = problems(project, refreshed=refreshed)
    if found:
        raise NotReadyError(found)
    ids = topic_ids(project)
    unfit = mismatches(project, refreshed, ids)
    if unfit:
        raise NotReadyError(unfit)
    lines = _allowed_changes(changes(project, refreshed))
    lines += refresh(project, refreshed)
    lines += [f"topic {name} was created" for name in create_topics(project)]
    lines += [
        f"topic {name} gets each row exactly once if a repeated batch has the same rows; at least "
        "once if a query uses random numbers or the current time"
        for name in written_topics(project.declarations)
    ]
    save_fingerprints(project, ids)
    return lines


def mismatches(project: Project, refreshed: Iterable[str], ids: Mapping[str, str]) -> list[str]:
    """Return a line for each flow with a checkpoint, table and topics that do not fit together."""
    checkpoints, renewed = Checkpoints.of(project.storage), set(refreshed)
    known = fingerprint(project)
    lines = []
    for flow in project.declarations.flows:
        if flow.once or is_view(project.declarations, flow) or flow.name in renewed:
            continue
        topics = {name: ids[name] for name in known[flow.name]["topics"] if name in ids}
        found = _mismatch(
            project, flow, checkpoints, _work(known[flow.name], ids)
        ) or topic_mismatch(flow.name, checkpoints, topics)
        if found is not None:
            lines.append(f"{found}, or start over with --refresh {flow.name}")
    return lines


def _work(told: Mapping[str, Any], ids: Mapping[str, str]) -> str:
    return f"headwater-work-{work_digest(told, ids)}"


def _mismatch(project: Project, flow: Flow, checkpoints: Checkpoints, work: str) -> str | None:
    sink = project.declarations.sinks.get(flow.target)
    if sink is None:
        table = open_table(table_target(project, flow.target))
        writers = [each.name for each in project.declarations.flows if each.target == flow.target]
        found = table_mismatch(flow.name, checkpoints, table)
        if found is None and not any(checkpoints.read_note(name) for name in writers):
            found = unknown_rows(flow.name, checkpoints, table)
        return found
    target = parse_target(sink.target)
    if target.is_table:
        table = open_table(Target(target.kind, str(project.root / target.place)))
        found = table_mismatch(flow.name, checkpoints, table)
        return found or filled_elsewhere(flow.name, checkpoints, table, work)
    query = checkpoints.query_id(flow.name)
    if query is None:
        return None
    with BlockingAdmin(**project.connection.client) as admin:
        lead = stale_checkpoint(
            flow.name, checkpoints, Ledger(admin, query).last_batch(target.place)
        )
    return f"{lead} in {target}: new rows would be skipped as written" if lead else None


def topic_ids(project: Project) -> dict[str, str]:
    """Return the ids of all topics that the pipeline reads, by name."""
    names = {name for flow in fingerprint(project).values() for name in flow["topics"]}
    if not names:
        return {}
    with BlockingAdmin(**project.connection.client) as admin:
        there = names & set(admin.list_topics())
        views = admin.describe_topics(sorted(there))
    return {name: view.topic_id.hex() for name, view in views.items()}


def _allowed_changes(found: Sequence[FlowChange]) -> list[str]:
    """Return harmless changes as lines; raise NotReadyError for others."""
    lines = [str(change) for change in found]
    stuck = [change.flow for change in found if change.verdict == "needs new checkpoint"]
    if stuck:
        options = " ".join(f"--refresh {name}" for name in dict.fromkeys(stuck))
        raise NotReadyError([*lines, f"undo these changes, or start over with {options}"])
    if any(change.verdict == "unsafe" for change in found):
        raise NotReadyError([*lines, "undo the unsafe changes, or give what changed a new name"])
    return lines


def problems(
    project: Project, *, live: bool = True, refreshed: Iterable[str] = ()
) -> list[Problem]:
    """Return all that is wrong with a project; if `live`, also against the broker and the tables.

    The tables that `refreshed` flows fill lose their columns, so those are not compared.
    """
    if not live:
        return [*check(project), *_repeated_letters(project)]
    with BlockingAdmin(**project.connection.client) as admin:
        topics = admin.list_topics()
    emptied = {flow.target for flow in project.declarations.flows if flow.name in set(refreshed)}
    names = [name for name in project.declarations.datasets if name not in emptied]
    schemas = {name: table.schema() for name, table in _tables(project, names) if table.exists()}
    return [*check(project, topics=topics, schemas=schemas), *_repeated_letters(project)]


def changes(project: Project, refreshed: Iterable[str] = ()) -> list[FlowChange]:
    """Return what changed since the last run, and what it means for checkpoints and tables.

    Refreshed flows are left out: they have no past.
    """
    checkpoints, renewed = Checkpoints.of(project.storage), set(refreshed)
    new = {name: flow for name, flow in fingerprint(project).items() if name not in renewed}
    noted = {
        name: facts
        for name, facts in checkpoints.all_notes().items()
        if facts.get("fingerprint") and name not in renewed
    }
    back = [name for name in new if name in noted and noted[name].get(_GONE)]
    old = {
        name: facts["fingerprint"]
        for name, facts in noted.items()
        if name in new or not facts.get(_GONE)
    }
    why = "it is back and continues where it stopped"
    found = [FlowChange(name, "safe", why) for name in back if checkpoints.started(name)]
    return [*found, *describe_change(old, new)] if old else []


def save_fingerprints(project: Project, ids: Mapping[str, str] | None = None) -> None:
    """Save the fingerprints of all flows, for the next run to compare.

    Notes of removed flows stay with their checkpoints: the flows may come back.
    """
    checkpoints, known = Checkpoints.of(project.storage), fingerprint(project)
    for name, flow in known.items():
        noted = {**(checkpoints.read_note(name) or {}), "fingerprint": flow, _GONE: False}
        if ids:
            noted[TOPIC_IDS] = {topic: ids[topic] for topic in flow["topics"] if topic in ids}
        if ids is not None:
            noted[WORK] = _work(flow, ids)
        checkpoints.write_note(name, noted)
    for name, noted in checkpoints.all_notes().items():
        if name not in known and "fingerprint" in noted:
            checkpoints.write_note(name, {**noted, _GONE: True})


def _repeated_letters(project: Project) -> Iterator[Problem]:
    for dataset in project.declarations.datasets.values():
        topic = dataset.quarantine.topic if dataset.quarantine else None
        if dataset.kind == "materialized_view" and topic:
            text = f"{dataset.name} is computed whole each time and would send the same rows to"
            yield Problem(dataset.origin, f"{text} {topic} again. Quarantine them in a table")


def create_topics(project: Project) -> list[str]:
    """Create the topics that the pipeline writes to, if they are missing; return their names."""
    wanted = written_topics(project.declarations)
    with BlockingAdmin(**project.connection.client) as admin:
        there = set(admin.list_topics())
        missing = [name for name in wanted if name not in there]
        admin.create_topics([NewTopic(name) for name in missing])
    return missing


def written_topics(declarations: Declarations) -> list[str]:
    """Return the topics of sinks and dead letters, without duplicates."""
    targets = [parse_target(sink.target) for sink in declarations.sinks.values()]
    names = [target.place for target in targets if not target.is_table]
    quarantines = [dataset.quarantine for dataset in declarations.datasets.values()]
    names += [aside.topic for aside in quarantines if aside is not None and aside.topic]
    return list(dict.fromkeys(names))


def refresh(project: Project, names: Iterable[str]) -> list[str]:
    """Remove the checkpoints of flows and empty their tables; return what was done, as lines.

    Downstream streams of an emptied table must be refreshed too, and all flows into one table
    together: NotReadyError names the missing ones, and nothing is changed. If the process is killed
    in between, the next run repeats the refresh: a full table under a new checkpoint would get its
    rows twice.
    """
    declarations, chosen = project.declarations, list(dict.fromkeys(names))
    flows = {flow.name: flow for flow in declarations.flows}
    for name in chosen:
        if name not in flows:
            raise NotReadyError([f"--refresh {name}: no such flow{nearest(name, flows)}"])
    needed = refresh_needs(declarations, chosen)
    if needed:
        options = " ".join(f"--refresh {name}" for name in needed)
        tables = ", ".join(sorted(set(needed.values())))
        raise NotReadyError([f"other flows read or fill {tables}, which is emptied: add {options}"])
    checkpoints = Checkpoints.of(project.storage)
    for name in chosen:
        checkpoints.write_note(name, {**(checkpoints.read_note(name) or {}), UNFINISHED: True})
    lines = [line for name in chosen for line in _refresh(project, flows[name])]
    for name in chosen:
        checkpoints.write_note(name, {**(checkpoints.read_note(name) or {}), UNFINISHED: False})
    return lines


def unfinished_refreshes(project: Project) -> list[str]:
    """Return the flows of a refresh that was interrupted."""
    noted = Checkpoints.of(project.storage).all_notes()
    known = {flow.name for flow in project.declarations.flows}
    return [name for name, facts in noted.items() if facts.get(UNFINISHED) and name in known]


def _refresh(project: Project, flow: Flow) -> Iterator[str]:
    if is_view(project.declarations, flow):
        yield f"{flow.name} is computed whole on every run; there is nothing to refresh"
        return
    checkpoints = Checkpoints.of(project.storage)
    again = checkpoints.refresh_count(flow.name) + 1
    checkpoints.write_note(flow.name, {REFRESHED: again, UNFINISHED: True})
    checkpoints.drop_checkpoint(flow.name)
    yield f"{flow.name} starts from the beginning of what it reads"
    dataset = project.declarations.datasets.get(flow.target)
    if dataset is None:
        yield f"{flow.target} gets its records again; earlier records are kept"
        return
    emptied = [flow.target, *([dataset.quarantine.table] if dataset.quarantine else [])]
    for name, table in _tables(project, filter(None, emptied)):
        if table.exists():
            empty_table(table)
            yield f"{name} was emptied; its older versions are kept until they expire"
    if dataset.quarantine is not None and dataset.quarantine.topic:
        yield f"{dataset.quarantine.topic} gets refused rows again; earlier records are kept"


def empty_table(table: Table) -> None:
    """Remove all rows of a table in one commit."""
    while True:
        batch = table.last_batch(REFRESHED_BY) + 1
        folders = table.partition_by()
        emptied = TableChange([], table.schema(), REFRESHED_BY, batch, folders, replaces=True)
        if table.commit(emptied):
            return


def _tables(project: Project, names: Iterable[str]) -> Iterator[tuple[str, Table]]:
    for name in names:
        dataset = project.declarations.datasets.get(name)
        if dataset is None or dataset.kind != "temporary_view":
            yield name, open_table(table_target(project, name))
