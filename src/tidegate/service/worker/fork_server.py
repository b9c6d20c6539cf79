"""The parent of the processes of jobs on Linux: it has loaded the engine, and forks.

A fork shares what was loaded with its parent, so it starts within milliseconds and needs a few megabytes of its own,
where a new interpreter needs a second of processor time and a hundred megabytes. The server has one thread, waits for
requests, and ends when the service is gone; its children then end too, however busy they are.

`python -m tidegate.service.worker.fork_server FD` serves a SOCK_SEQPACKET socket. `{"fork": ID}` comes with the
channel of the new process as a descriptor and is answered by `{"forked": ID, "pid": PID}`; `{"kill": ID}` kills it.
`{"gone": ID, "status": STATUS}` follows when it has ended, with what waitpid says.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from typing import Any

MOST_BYTES = 4096


def serve(control: socket.socket) -> None:
    """Fork on request until the service is gone."""
    _load()
    gc.collect()
    gc.freeze()
    ForkServer(control).run()


def _load() -> None:
    """Import what every job needs, so that forks share it: the engine, and every kind of input and output."""
    import pyarrow as pa

    from tidegate.connectors.inputs.kinds import INPUTS
    from tidegate.connectors.outputs.kinds import OUTPUTS
    from tidegate.engine import CATALOG
    from tidegate.service.worker import process
    from tidegate.sql import compile_query

    assert INPUTS.by_name
    assert OUTPUTS.by_name
    pa.array(["warm"])
    compile_query(_QUERY, catalog=CATALOG)
    process.name_process("tidegate-jobs")


_QUERY = (
    "SELECT System.Timestamp() AS t, COUNT(*) AS n INTO o FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 1)"
)


class ForkServer:
    """The loop of the server."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._awake, wake = os.pipe()
        os.set_blocking(self._awake, False)
        os.set_blocking(wake, False)
        self._wake = wake
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        # A terminal's Ctrl-C and a service manager's SIGTERM are for the service, which ends this process in its turn.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._children: dict[int, int] = {}

    def run(self) -> None:
        """Serve until the other end of the control socket is closed."""
        # Not select(): a service with a thousand connections passes on a descriptor beyond what that takes.
        poll = select.poll()
        for descriptor in (self._control.fileno(), self._awake):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._awake in ready:
                os.read(self._awake, MOST_BYTES)
            self._reap()
            if self._control.fileno() in ready:
                data, descriptors, _, _ = socket.recv_fds(self._control, MOST_BYTES, 1)
                if not data:
                    self._end()
                    return
                self._answer(json.loads(data), descriptors)

    def _answer(self, request: dict[str, Any], descriptors: list[int]) -> None:
        if "fork" in request:
            pid = os.fork()
            if pid == 0:
                self._become_worker(descriptors[0])
            for descriptor in descriptors:
                os.close(descriptor)
            self._children[pid] = request["fork"]
            self._tell({"forked": request["fork"], "pid": pid})
        else:
            for pid, number in self._children.items():
                if number == request["kill"]:
                    os.kill(pid, signal.SIGKILL)

    def _become_worker(self, descriptor: int) -> None:
        status = 1
        try:
            parent = os.getppid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            os.close(self._awake)
            os.close(self._wake)
            from tidegate.service.worker import process

            process.end_with_parent(parent)
            with socket.socket(fileno=descriptor) as stream:
                process.live(stream.recv, stream.sendall)
            status = 0
        except BrokenPipeError:
            pass  # The service is gone.
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            for stream_of_text in (sys.stdout, sys.stderr):
                stream_of_text.flush()
            os._exit(status)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            number = self._children.pop(pid, None)
            if number is not None:
                self._tell({"gone": number, "status": status})

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self._control.send(json.dumps(message).encode())
        except BrokenPipeError:
            self._end()
            os._exit(0)

    def _end(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
