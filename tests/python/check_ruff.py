"""Runs ruff with the rules of pyproject.toml over every script; skipped where tools/python_env.sh could not install it."""

import importlib.util
import os
import sys

if not importlib.util.find_spec("ruff"):
    print("skipped: ruff is not installed: tools/python_env.sh installs it")
    sys.exit(77)
os.execv(sys.executable, [sys.executable, "-m", "ruff", "check", "--no-cache", os.environ["NEAP_SOURCE"]])
