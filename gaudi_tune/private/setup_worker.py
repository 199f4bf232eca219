"""Starts a process of Ray as Ray's ``setup_worker.py`` does, but without importing Ray, which the process does itself.

Ray runs this script with the command of the process and the description of its environment.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

FORK_SERVER = "GAUDI_TUNE_FORK_SERVER"
"""Variable with the address of the fork server; "off" means that there is none."""
CONTEXT, LANGUAGE = "--serialized-runtime-env-context=", "--language="


def start(arguments: list[str]) -> NoReturn:
    """Become the process, or have the fork server start it.

    Ray's own script does it for other languages than Python, and for environments that need more than variables.
    """
    contexts = [argument.removeprefix(CONTEXT) for argument in arguments if argument.startswith(CONTEXT)]
    context: dict[str, Any] = json.loads(contexts[-1]) if any(contexts) else {}
    unsupported = {name for name, value in context.items() if value} - {"env_vars", "py_executable"}
    if unsupported or f"{LANGUAGE}PYTHON" not in arguments:
        original = Path(arguments[0]).with_name("setup_worker.py")
        os.execv(sys.executable, [sys.executable, str(original), *arguments])
    for name, value in context.get("env_vars", {}).items():
        os.environ[name] = re.sub(r"\$\{[A-Z0-9_]+\}", "", os.path.expandvars(value))
    python = context.get("py_executable") or sys.executable
    arguments = [argument for argument in arguments if not argument.startswith((CONTEXT, LANGUAGE))]
    if python == sys.executable and is_forked(arguments):
        os._exit(0)
    os.execv(python, [python, *arguments])


def is_forked(arguments: list[str]) -> bool:
    """Whether the fork server has started the process, with this one's variables, folder and standard files."""
    address = os.environ.get(FORK_SERVER, "off")
    if address == "off":
        return False
    request = json.dumps([arguments, dict(os.environ), os.getcwd()]).encode()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(address)
            socket.send_fds(connection, [request], [0, 1, 2])
            return bool(connection.recv(1))  # empty if the server refuses or has ended
    except OSError:
        return False


if __name__ == "__main__":
    start(sys.argv[1:])
