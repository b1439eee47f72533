"""A PostgreSQL of one's own for a test, in a temporary folder, as an unprivileged user."""

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from glob import glob

from tools.free_ports import free_port


def programs():
    """Where initdb and pg_ctl are; None where PostgreSQL is not installed."""
    found = sorted(glob("/usr/lib/postgresql/*/bin/initdb"))
    return os.path.dirname(found[-1]) if found else None


@contextmanager
def running_postgres():
    """Start one; yields what psycopg.connect takes."""
    where = programs()
    folder = tempfile.mkdtemp(prefix="headwater-pg-", dir="/tmp")
    data = os.path.join(folder, "data")
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    if os.geteuid() == 0:
        shutil.chown(folder, user)
    port = free_port()

    def run(*command):
        prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        subprocess.run(
            [*(prefix if os.geteuid() == 0 else []), *command],
            check=True,
            capture_output=True,
            cwd=folder,
            timeout=60,
        )

    try:
        run(f"{where}/initdb", "-D", data, "-A", "trust", "-U", "postgres", "-N", "-E", "UTF8")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        log = os.path.join(folder, "log")
        run(f"{where}/pg_ctl", "-D", data, "-w", "-l", log, "-o", f"{options} -F", "start")
        try:
            yield f"host=127.0.0.1 port={port} user=postgres dbname=postgres"
        finally:
            run(f"{where}/pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
