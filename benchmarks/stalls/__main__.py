"""The table of stalls: python -m benchmarks.stalls [--mib 8] [--quick]."""

import argparse

from benchmarks.stalls.requests import largest, served
from benchmarks.stalls.scenes import Scale, scenes
from benchmarks.stalls.watch import Connection, Watch
from headwater.processes.local_nodes import unused_port
from headwater.testing import Broker

STALL_MS = 20
BYTES_PER_BYTE = 16
FREE_BYTES = 1 << 20
BUDGET = 256 << 20
"""What a flood may take: the default of queued.max.request.bytes."""
QUICK = Scale(50, 5, 50, 500, 50, 50, 8, 60 << 20, 128, 10_000)

WITH_CONTROL_LISTENER = {
    "control.plane.listener.name": "CONTROL",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
}


def main() -> None:
    """Measure each API at its largest, then large numbers of everything."""
    options = argparse.ArgumentParser(prog="benchmarks.stalls")
    options.add_argument("--mib", type=float, default=8, help="size of the requests")
    options.add_argument("--quick", action="store_true", help="small numbers of everything")
    chosen = options.parse_args()
    print(f"targets: stall <= {STALL_MS} ms, memory <= {BYTES_PER_BYTE} x bytes + 1 MiB,")
    print(f"of the flood <= {BUDGET >> 20} MiB; '!' marks what misses one")
    print(f"{'request':48} {'MiB sent':>9} {'stall ms':>10} {'peak MiB':>10} {'per byte':>9}")
    with Broker(subprocess=True) as broker:
        for api in served():
            frame = largest(api, int(chosen.mib * (1 << 20)))
            with Watch(broker.port, broker.pid) as watch, Connection(broker.port) as connection:
                refused = connection.ask(frame) is None
            _row(api.name + (" (refused)" if refused else ""), len(frame), watch)
    control_port = unused_port()
    listeners = f"PLAINTEXT://127.0.0.1:0,CONTROL://127.0.0.1:{control_port}"
    with Broker(WITH_CONTROL_LISTENER, subprocess=True, listeners=listeners) as broker:
        for scene in scenes(broker.port, QUICK if chosen.quick else Scale()):
            with Watch(control_port if scene.of_controller else broker.port, broker.pid) as watch:
                sent = scene.play()
            _row(scene.name, sent, watch, flood="unfinished" in scene.name)


def _row(name: str, sent: int, watch: Watch, *, flood: bool = False) -> None:
    stall_ms, peak = watch.seen
    allowed = BUDGET if flood else BYTES_PER_BYTE * sent + FREE_BYTES
    late = "!" if stall_ms > STALL_MS else " "
    large = "!" if peak > allowed else " "
    per_byte = peak / max(1, sent)
    print(
        f"{name:48} {sent / (1 << 20):9.2f} {stall_ms:9.1f}{late} {peak / (1 << 20):9.1f}{large} "
        f"{per_byte:9.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
