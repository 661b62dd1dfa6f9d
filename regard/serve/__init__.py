"""Serve: trained runs behind an HTTP API and a page, with limits.

`Served` is a run as the server knows it, `Engine` the one thread that computes, `application` the
routes with their guard, and `serve` runs them until it is told to stop. FastAPI and uvicorn are
imported by http.py and server.py alone.
"""

from regard.serve.engine import Engine
from regard.serve.limits import Limits
from regard.serve.served_run import Change, Choice, Said, Served

__all__ = ["Change", "Choice", "Engine", "Limits", "Said", "Served"]
