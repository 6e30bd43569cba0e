#!/usr/bin/env python3
"""The last step of `meson install`: makes the log of the installation whole, so that `ninja uninstall` leaves nothing.

Meson's log has only the folders that this installation made: those that an earlier one made are missing. And Python, run as root,
would write its compiled modules beside the sources: they are made here instead, and are in the log.
"""

import compileall
import os
import pathlib
import shutil

log = pathlib.Path(os.environ["MESON_BUILD_ROOT"], "meson-logs", "install-log.txt")
prefix = pathlib.Path(os.environ["MESON_INSTALL_DESTDIR_PREFIX"])
files = [pathlib.Path(line) for line in log.read_text().splitlines() if line and not line.startswith("#")]

for folder in {file.parent for file in files if file.suffix == ".py"}:
    cache = folder / "__pycache__"
    if cache.is_dir():  # left by an earlier version
        shutil.rmtree(cache)
    compileall.compile_dir(folder, maxlevels=0, quiet=1)
    if cache.is_dir():
        files += cache.iterdir()

folders = {folder for file in files for folder in file.parents if prefix in folder.parents}
if prefix in (pathlib.Path("/usr"), pathlib.Path("/usr/local")):  # the system's own folders stay, also when they are empty
    folders = {folder for folder in folders if folder.parent != prefix and folder != prefix / "share" / "man"}
else:
    folders.add(prefix)

# Meson still has the old file open, and appends to it.
whole = log.with_suffix(".whole")
in_order = files + sorted(folders, key=lambda folder: len(folder.parts), reverse=True)
whole.write_text("".join(f"{path}\n" for path in in_order))
whole.replace(log)
