#!/usr/bin/env bash
# tests/update_expected.sh [SUITE...]: writes the expected outputs of the command's tests (tests/*/expected) again by
# running them: the .bats files of these names, or all. Then it shows the changes: read them before you commit.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
	# shellcheck disable=SC2046 # names of files
	set -- $(cd tests && ls -d */expected/* | xargs -n 1 basename)
fi
declare -A tests=() groups=() # selected by .bats file, by name and by meson's suite, as other suites have tests of the same name
while IFS=$'\t' read -r name group file; do tests[$file]=$name groups[$file]=$group; done < <(meson introspect "${BUILD:-build}" --tests |
	jq -r '.[] | .name as $name | .suite[0] as $group | .cmd[] | select(endswith(".bats")) |
		[$name, $group, (split("/") | last | rtrimstr(".bats"))] | @tsv')
names=() suites=() # of meson, which takes no option between two names
for suite; do
	[ -n "${tests[$suite]-}" ] || { echo "no $suite.bats in tests/" >&2 && exit 64; }
	suites+=(--suite "${groups[$suite]}")
	names+=("${tests[$suite]}")
done
code=0
NEAP_UPDATE_EXPECTED=1 meson test -C "${BUILD:-build}" --no-rebuild --print-errorlogs "${suites[@]}" "${names[@]}" || code=$?
git --no-pager diff --stat -- 'tests/*/expected/*'
git --no-pager diff -- 'tests/*/expected/*'
git ls-files --others --exclude-standard -- 'tests/*/expected/*'
exit "$code"
