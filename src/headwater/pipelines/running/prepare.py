"""What must be right and in place before a pipeline runs: the graph, its topics, a refresh.

The broker and the tables are asked here, Spark is not: a mistake is told in a second.
"""

from collections.abc import Iterable, Iterator, Sequence

from headwater.client.admin import BlockingAdmin, NewTopic
from headwater.config.keys import nearest
from headwater.pipelines.declaring.declare import Declarations, Flow, Project
from headwater.pipelines.declaring.graph import Problem, check
from headwater.pipelines.declaring.upgrade import Change, describe_change, fingerprint
from headwater.pipelines.running.binding import table_target
from headwater.pipelines.running.checkpoints import REFRESHED, UNFINISHED, Checkpoints
from headwater.pipelines.running.plan import is_view, refresh_needs
from headwater.pipelines.tables.table import Table, open_table
from headwater.pipelines.targets import parse_target

_REFRESHED_BY = "headwater-refresh"


class NotReadyError(Exception):
    """Why a pipeline cannot run as it is: one line for each reason. Nothing was changed."""

    def __init__(self, lines: Iterable[object]) -> None:
        self.lines = [str(line) for line in lines]
        super().__init__("; ".join(self.lines))


def make_ready(project: Project, refreshed: Sequence[str] = ()) -> list[str]:
    """Check everything, then do what must be done before the first query; says what that was.

    Raises NotReadyError where the graph has problems, where the code has changed in a way that
    checkpoints or tables do not allow, or where a refresh would not be whole.
    """
    found = problems(project)
    if found:
        raise NotReadyError(found)
    refreshed = [*refreshed, *unfinished(project)]
    lines = _allowed(changes(project, refreshed))
    lines += refresh(project, refreshed)
    lines += [f"topic {name} was created" for name in create_topics(project)]
    lines += [
        f"topic {name} gets each row once as long as a repeated batch has the same rows: "
        "at least once where a query draws lots or asks for the time"
        for name in written_topics(project.declarations)
    ]
    remember(project)
    return lines


def _allowed(found: Sequence[Change]) -> list[str]:
    """Changes that a run may go on with, as lines."""
    lines = [str(change) for change in found]
    stuck = [change.flow for change in found if change.verdict == "needs new checkpoint"]
    if stuck:
        told = " ".join(f"--refresh {name}" for name in dict.fromkeys(stuck))
        raise NotReadyError([*lines, f"undo these changes, or start anew with {told}"])
    if any(change.verdict == "unsafe" for change in found):
        raise NotReadyError([*lines, "undo the unsafe changes, or give what changed a new name"])
    return lines


def problems(project: Project, *, live: bool = True) -> list[Problem]:
    """All that is wrong with a project; `live`: also against the broker and the tables."""
    if not live:
        return [*check(project), *_repeated_letters(project)]
    with BlockingAdmin(bootstrap_servers=project.bootstrap_servers) as admin:
        topics = admin.list_topics()
    datasets = project.declarations.datasets
    schemas = {name: table.schema() for name, table in _tables(project, datasets) if table.exists()}
    return [*check(project, topics=topics, schemas=schemas), *_repeated_letters(project)]


def changes(project: Project, refreshed: Iterable[str] = ()) -> list[Change]:
    """What changed since the last run, and what that means for checkpoints and tables.

    A flow that is refreshed has no past that a change could disagree with.
    """
    places, afresh = Checkpoints.of(project.storage), set(refreshed)
    noted = {name: facts.get("fingerprint") for name, facts in places.all_noted().items()}
    old = {name: known for name, known in noted.items() if known and name not in afresh}
    new = {name: told for name, told in fingerprint(project).items() if name not in afresh}
    return describe_change(old, new) if old else []


def remember(project: Project) -> None:
    """Note what the flows are, for the next run to compare."""
    places, known = Checkpoints.of(project.storage), fingerprint(project)
    for name, told in known.items():
        places.note(name, {**(places.noted(name) or {}), "fingerprint": told})
    for name in places.all_noted():
        if name not in known:
            places.drop_note(name)


def _repeated_letters(project: Project) -> Iterator[Problem]:
    for dataset in project.declarations.datasets.values():
        topic = dataset.quarantine.topic if dataset.quarantine else None
        if dataset.kind == "materialized_view" and topic:
            text = f"{dataset.name} is computed whole each time and would send the same rows to"
            yield Problem(dataset.origin, f"{text} {topic} again. Quarantine them in a table")


def create_topics(project: Project) -> list[str]:
    """Make the topics that the pipeline writes to and that are missing; says which."""
    wanted = written_topics(project.declarations)
    with BlockingAdmin(bootstrap_servers=project.bootstrap_servers) as admin:
        there = set(admin.list_topics())
        missing = [name for name in wanted if name not in there]
        admin.create_topics([NewTopic(name) for name in missing])
    return missing


def written_topics(declarations: Declarations) -> list[str]:
    """Topics of sinks and dead letters, each once."""
    targets = [parse_target(sink.target) for sink in declarations.sinks.values()]
    names = [target.place for target in targets if not target.is_table]
    quarantines = [dataset.quarantine for dataset in declarations.datasets.values()]
    names += [aside.topic for aside in quarantines if aside is not None and aside.topic]
    return list(dict.fromkeys(names))


def refresh(project: Project, names: Iterable[str]) -> list[str]:
    """Begin flows anew: no checkpoint, and empty tables; says what was done.

    Downstream streams of an emptied table must be refreshed too, and all flows into one table
    together: NotReadyError names those that are missing, and nothing is changed. Killed in between,
    the next run does it again: a table that is full under a new checkpoint would get its rows twice.
    """
    declarations, chosen = project.declarations, list(dict.fromkeys(names))
    flows = {flow.name: flow for flow in declarations.flows}
    for name in chosen:
        if name not in flows:
            raise NotReadyError([f"--refresh {name}: no such flow{nearest(name, flows)}"])
    needed = refresh_needs(declarations, chosen)
    if needed:
        told = " ".join(f"--refresh {name}" for name in needed)
        tables = ", ".join(sorted(set(needed.values())))
        raise NotReadyError([f"{tables} would be emptied under others: add {told}"])
    places = Checkpoints.of(project.storage)
    for name in chosen:
        places.note(name, {**(places.noted(name) or {}), UNFINISHED: True})
    lines = [line for name in chosen for line in _refresh(project, flows[name])]
    for name in chosen:
        places.note(name, {**(places.noted(name) or {}), UNFINISHED: False})
    return lines


def unfinished(project: Project) -> list[str]:
    """Flows whose refresh was killed."""
    noted = Checkpoints.of(project.storage).all_noted()
    known = {flow.name for flow in project.declarations.flows}
    return [name for name, facts in noted.items() if facts.get(UNFINISHED) and name in known]


def _refresh(project: Project, flow: Flow) -> Iterator[str]:
    if is_view(project.declarations, flow):
        yield f"{flow.name} is computed whole on every run; there is nothing to refresh"
        return
    places = Checkpoints.of(project.storage)
    again = places.times_refreshed(flow.name) + 1
    places.note(flow.name, {REFRESHED: again, UNFINISHED: True})
    places.drop_checkpoint(flow.name)
    yield f"{flow.name} starts from the beginning of what it reads"
    dataset = project.declarations.datasets.get(flow.target)
    if dataset is None:
        yield f"{flow.target} gets its records again: what is there stays there"
        return
    emptied = [flow.target, *([dataset.quarantine.table] if dataset.quarantine else [])]
    for name, table in _tables(project, filter(None, emptied)):
        if table.exists():
            empty(table)
            yield f"{name} was emptied; its older versions stay until they are cleaned"
    if dataset.quarantine is not None and dataset.quarantine.topic:
        yield f"{dataset.quarantine.topic} gets refused rows again: what is there stays there"


def empty(table: Table) -> None:
    """Take all rows out of a table with one commit."""
    batch = table.last_batch(_REFRESHED_BY) + 1
    while not table.replace([], table.schema(), _REFRESHED_BY, batch, table.partition_by()):
        batch = table.last_batch(_REFRESHED_BY) + 1


def _tables(project: Project, names: Iterable[str]) -> Iterator[tuple[str, Table]]:
    for name in names:
        dataset = project.declarations.datasets.get(name)
        if dataset is None or dataset.kind != "temporary_view":
            yield name, open_table(table_target(project, name))
