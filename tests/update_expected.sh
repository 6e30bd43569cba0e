#!/usr/bin/env bash
# tests/update_expected.sh [SUITE...]: writes anew what the tests of the command expect to see (tests/*/expected), by running
# them: the .bats files of these names, or all. Then it shows what changed: read it before you commit it.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
	# shellcheck disable=SC2046 # names of files
	set -- $(cd tests && ls -d */expected/* | xargs -n 1 basename)
fi
declare -A tests=() # by their .bats files
while IFS=$'\t' read -r name file; do tests[$file]=$name; done < <(meson introspect "${BUILD:-build}" --tests |
	jq -r '.[] | .name as $name | .cmd[] | select(endswith(".bats")) | [$name, (split("/") | last | rtrimstr(".bats"))] | @tsv')
names=()
for suite; do
	[ -n "${tests[$suite]-}" ] || { echo "no $suite.bats in tests/" >&2 && exit 64; }
	names+=("${tests[$suite]}")
done
code=0
NEAP_UPDATE_EXPECTED=1 meson test -C "${BUILD:-build}" --no-rebuild --print-errorlogs "${names[@]}" || code=$?
git --no-pager diff --stat -- 'tests/*/expected'
git --no-pager diff -- 'tests/*/expected'
git ls-files --others --exclude-standard -- 'tests/*/expected'
exit "$code"
