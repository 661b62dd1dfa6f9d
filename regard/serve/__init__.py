"""Serve: trained runs behind an HTTP API and a page, with limits.

`Served` is a run as the server uses it, `Engine` the one thread that computes, `application` the
routes with their guard, and `server` runs them until a signal. Only http.py and server.py import
FastAPI and uvicorn.
"""

from regard.serve.engine import Engine
from regard.serve.limits import Limits
from regard.serve.served_run import Change, Served

__all__ = ["Change", "Engine", "Limits", "Served"]
