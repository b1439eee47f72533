"""Loads a project from disk: pipeline.yml and the Python and SQL files it names.

Each Python file runs as a module of its own that is removed from sys.modules (so that functions for
Spark's workers are pickled by value) and from sys.path. An error in a file becomes one line with its
place.
"""

import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType

from headwater.pipelines.connection_settings import ConnectionSettings
from headwater.pipelines.declaring.arguments import text_of
from headwater.pipelines.declaring.declare import DeclarationError, Project, SourceLocation
from headwater.pipelines.declaring.project_file import NAME, ProjectFile, read_project_file
from headwater.pipelines.declaring.registry import collecting
from headwater.pipelines.declaring.sql_files import load_sql


def load_project(
    path: str | Path,
    *,
    overrides: Mapping[str, str] | None = None,
    default_servers: str | None = None,
) -> Project:
    """Load the project at `path`: a folder with pipeline.yml, that file, or one .py or .sql file.

    Args:
        path: the folder or file.
        overrides: settings of pipeline.yml by name (`storage`, `spark.…`, `tables.NAME.format`).
        default_servers: the brokers if neither the project nor the environment names any.
    """
    file = _project_file(Path(path), overrides or {}, default_servers)
    with collecting(file.root) as registry, _importing(file.root):
        for definition in file.definitions:
            if definition.suffix == ".sql":
                load_sql(definition, registry)
            else:
                _execute(definition, file.root)
    declarations = registry.declarations(file.settings, file.tables)
    file.refuse_unknown_tables(declarations)
    return Project(
        name=file.name,
        root=file.root,
        storage=file.storage,
        connection=ConnectionSettings(file.bootstrap_servers),
        declarations=declarations,
        spark=file.spark,
        settings=file.settings,
    )


def _project_file(
    path: Path, overrides: Mapping[str, str], default_servers: str | None
) -> ProjectFile:
    read = partial(read_project_file, overrides=overrides, default_servers=default_servers)
    if path.suffix in (".py", ".sql") and path.is_file():
        return read(path.parent, "", str(path), definitions=[path.name])
    file = path / NAME if path.is_dir() else path
    if not file.is_file():
        raise DeclarationError(
            SourceLocation(str(file), 1),
            "there is no such file. Name a folder with pipeline.yml, or a .py or .sql file",
        )
    return read(file.parent, text_of(file), str(file))


@contextmanager
def _importing(root: Path) -> Iterator[None]:
    """Let files import other files of the project, and undo these imports afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(root))
    try:
        yield
    finally:
        sys.path.remove(str(root))
        for name in set(sys.modules) - before:
            top = name.partition(".")[0]
            if (root / top).is_dir() or (root / f"{top}.py").is_file():
                del sys.modules[name]


def _execute(path: Path, root: Path) -> None:
    file = str(path)
    here = str(path.absolute())
    if any(getattr(known, "__file__", None) == here for known in list(sys.modules.values())):
        return  # another file has imported it, so its declarations are registered
    module = ModuleType(f"_pipeline_{path.stem}")
    module.__file__ = here
    sys.modules[module.__name__] = module
    try:
        exec(compile(path.read_bytes(), file, "exec"), module.__dict__)
    except DeclarationError:
        raise
    except SyntaxError as problem:
        place = SourceLocation(problem.filename or file, problem.lineno or 1)
        raise DeclarationError(place, f"this is not valid Python: {problem.msg}") from problem
    except (Exception, SystemExit) as problem:
        raise DeclarationError(_place(problem, file, root), _told(problem)) from problem
    finally:
        del sys.modules[module.__name__]


def _place(problem: BaseException, file: str, root: Path) -> SourceLocation:
    """Return the innermost line of the project's own files in the traceback."""
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).absolute().is_relative_to(root)]
    named = [frame for frame in own or frames if frame.filename != __file__]
    last = named[-1] if named else None
    return SourceLocation(last.filename, last.lineno or 1) if last else SourceLocation(file, 1)


def _told(problem: BaseException) -> str:
    if _needs_spark(problem):
        return (
            "Spark is used while this file is loaded, and no session runs yet. Move the call into"
            " the query; give a UDF its type as an object: @udf(returnType=DoubleType())"
        )
    text = " ".join(str(problem).split()) or "no message"
    return f"loading this file failed with {type(problem).__name__}: {text}"


def _needs_spark(problem: BaseException) -> bool:
    """Return whether PySpark failed without a session: `sf.col("x")` or `@udf("double")` at the top."""
    frames = traceback.extract_tb(problem.__traceback__)
    in_pyspark = bool(frames) and f"{os.sep}pyspark{os.sep}" in frames[-1].filename
    named = "SparkContext" in str(problem) or "session" in str(problem).lower()
    return in_pyspark and (isinstance(problem, AssertionError) or named)
