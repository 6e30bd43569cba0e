#!/usr/bin/env bash
# packaging/container.sh: builds the container image neap:VERSION from packaging/Containerfile, with the builder that is there
# (podman, buildah or docker). Exit status 77: there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n "s/.*version: '\([0-9.]*\)'.*/\1/p" meson.build | head -1)
for builder in podman buildah docker; do
	command -v "$builder" >/dev/null || continue
	exec "$builder" build --file packaging/Containerfile --tag "neap:$version" .
done
echo "packaging/container.sh: no builder of containers is installed (podman, buildah or docker)" >&2
exit 77
