"""Spark's own words go to a file beside the tables, so that the terminal keeps to ours.

A driver that fails writes hundreds of lines; the one that matters is told by the runner, and the
rest is here for those who need it.
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
    """Where Spark's words are kept."""
    return storage / FOLDER / "spark.log"


def log_settings(storage: Path) -> dict[str, str]:
    """Spark settings that send the driver's log there."""
    folder = (storage / FOLDER).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    rules = folder / "log4j2.properties"
    rules.write_text(_LOG4J.format(folder=folder))
    return {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={rules.as_uri()}",
        "spark.log.level": "WARN",
    }
