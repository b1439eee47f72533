"""Sends Spark's own log to a file beside the tables, away from the terminal.

A driver that fails logs hundreds of lines; the runner reports the cause in one line, and the rest is in
this file.
"""

from pathlib import Path
from typing import Final

FOLDER: Final = "_logs"

_LOG4J: Final = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {folder}/spark.log
appender.file.filePattern = {folder}/spark-%i.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""


def log_file(storage: Path) -> Path:
    """Return the file of Spark's log."""
    return storage / FOLDER / "spark.log"


def log_settings(storage: Path) -> dict[str, str]:
    """Return Spark settings that send the driver's log to that file."""
    folder = (storage / FOLDER).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    rules = folder / "log4j2.properties"
    rules.write_text(_LOG4J.format(folder=folder))
    return {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={rules.as_uri()}",
        "spark.log.level": "WARN",
    }
