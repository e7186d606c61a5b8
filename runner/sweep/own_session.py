"""Imported by the fork server, first of all: a signal to the sweep's process group must not kill the server.

Without its server the sweep would take a trial that is still saving its checkpoint for dead. The server ends by itself
when the sweep's process does.
"""

from __future__ import annotations

import os

if os.getpid() != os.getsid(0):
    os.setsid()
