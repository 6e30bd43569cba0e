#!/usr/bin/env bash
# packaging/symbols.sh LIBNEAP [--update]: compares what the library exports with packaging/debian/libneap0.symbols, which says
# since which version each function is there. A function that is gone, or has another version, breaks programs: such a change
# needs a new soname. --update adds new functions, as of the version in meson.build, and leaves the rest.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
file=$here/debian/libneap0.symbols
exported=$(nm -D --defined-only --with-symbol-versions "$1" | sed -n 's/^[0-9a-f]* [^A] \(.*\)@@\(.*\)$/\1@\2/p' | LC_ALL=C sort)
known=$(sed -n 's/^ \([a-z0-9_]*@[A-Z0-9_]*\) .*/\1/p' "$file" | LC_ALL=C sort)
gone=$(LC_ALL=C comm -13 <(echo "$exported") <(echo "$known"))
new=$(LC_ALL=C comm -23 <(echo "$exported") <(echo "$known"))
if [ "${2-}" = --update ]; then
	version=$(sed -n "s/^ *version: '\(.*\)',/\1/p" "$here/../meson.build" | head -1)
	for symbol in $new; do echo " $symbol $version"; done >>"$file"
	{ sed -n '/^[^ ]/p' "$file"; sed -n '/^ /p' "$file" | LC_ALL=C sort; } >"$file.new"
	mv "$file.new" "$file"
	new=
fi
[ -z "$gone" ] || printf 'no longer exported: %s\n' $gone
[ -z "$new" ] || printf 'exported, but not in libneap0.symbols (packaging/symbols.sh LIBNEAP --update adds it): %s\n' $new
[ -z "$gone$new" ]
