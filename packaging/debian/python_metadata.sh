#!/bin/sh
# python_metadata.sh FOLDER VERSION: what pip and pytest look for beside the package, which lies in /usr/share/neap/python:
# `neap run` puts it on PYTHONPATH of any Python.
set -e
info=$1/neap-$2.dist-info
mkdir -p "$info"
ln -s ../../../share/neap/python/neap "$1/neap"
printf 'Metadata-Version: 2.1\nName: neap\nVersion: %s\nSummary: Keeps GPU training inside memory\nLicense: MIT\n' "$2" >"$info/METADATA"
printf '[pytest11]\nneap = neap.pytest_plugin\n' >"$info/entry_points.txt"
printf 'debian\n' >"$info/INSTALLER"
