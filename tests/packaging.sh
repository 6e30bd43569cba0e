#!/usr/bin/env bash
# tests/packaging.sh: packs the last commit as `meson dist` does, builds the archive, installs it into a folder, moves
# that folder, and uses it as a user would: the command, the library, the simulator. Prints what it tried; exits 1 at
# the first failure. Without git, or outside a checkout, it builds the tree itself instead of an archive.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD
work=$(mktemp -d "${TMPDIR:-/tmp}/neap-packaging-XXXXXX")
world=packaging-$$
trap 'rm -rf "$work"; rm -f /dev/shm/neap-sim-*-"$world"' EXIT
unset NEAP_SIM_PATH NEAP_LIBRARY NEAP_ATTACH CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH PYTHONPATH GIT_CONFIG_GLOBAL
mkdir -m 700 "$work/runtime"
export XDG_RUNTIME_DIR=$work/runtime XDG_STATE_HOME=$work/state HOME=$work
export NEAP_DEVICE=sim NEAP_SIM=mem=1GiB,world=$world

# tried WHAT COMMAND...: runs it; its output is shown when it fails
tried() {
	local what=$1
	shift
	if ! "$@" >"$work/output" 2>&1; then
		printf 'FAIL  %s: %s\n' "$what" "$*" >&2
		cat "$work/output" >&2
		exit 1
	fi
	printf 'ok    %s\n' "$what"
}
# says WORDS COMMAND...: the command must succeed and print WORDS
says() {
	local words=$1
	shift
	"$@" >"$work/said" 2>&1 && grep -qF -- "$words" "$work/said" && return
	echo "Status $?, and what it says should have in it '$words':"
	cat "$work/said"
	return 1
}

if git -c safe.directory="$source" rev-parse --git-dir >/dev/null 2>&1; then
	git config --global --add safe.directory '*' # in the HOME that this script makes
	tried "a folder to pack from" meson setup "$work/pack" -Dcommand=disabled
	tried "meson dist: the last commit as an archive" meson dist -C "$work/pack" --no-tests --allow-dirty
	mkdir "$work/source"
	tried "the archive is whole" tar -xJf "$work"/pack/meson-dist/neap-*.tar.xz -C "$work/source" --strip-components=1
	source=$work/source
fi

tried "libneap alone, where there is no other library" env PKG_CONFIG_LIBDIR="$work" meson setup "$work/alone" "$source" \
	-Dcommand=disabled -Doptimization=0
tried "... is built" meson compile -C "$work/alone" neap:shared_library
tried "all of it" meson setup "$work/build" "$source" --prefix=/opt/neap --libdir=lib64 \
	-Doptimization=0
tried "... is built" ninja -C "$work/build"

cd "$work" # nothing below may depend on the working folder
version=$(sed -n "s/^ *version: '\(.*\)',/\1/p" "$source/meson.build" | head -1)
mkdir here
ln -s "$work/build/src/neap" here/neap
tried "not installed, by a link" says "Simulated GPU 1024 MiB" here/neap info
tried "not installed, a run" says "peak " "$work/build/src/neap" run -- "$work/build/examples/charlm/charlm" --steps 2

# Installed twice, used, and uninstalled: neither a folder nor a cache of Python stays.
uses_python() { # imports everything that neap run gives to a script
	PYTHONPATH=$work/prefix/share/neap/python/launch NEAP_ATTACH=1 NEAP_DEVICE=sim \
		python3 -c 'import neap, neap.hooks; print(neap.__file__, neap.version())'
}
tried "another prefix" meson configure "$work/build" -Dprefix="$work/prefix"
tried "meson install" meson install -C "$work/build"
tried "the Python package" says "$work/prefix/share/neap/python/neap/__init__.py $version" uses_python
touch "$work/prefix/share/neap/python/neap/__pycache__/gone.cpython-311.pyc" # left by an earlier version
tried "meson install again" meson install -C "$work/build"
tried "ninja uninstall" ninja -C "$work/build" uninstall
tried "... leaves nothing" sh -c '! find "$1" | grep .' - "$work/prefix"
tried "the first prefix again" meson configure "$work/build" -Dprefix=/opt/neap

tried "meson install --destdir" meson install -C "$work/build" --destdir "$work/staged"
mv "$work/staged/opt/neap" "$work/moved"
mv "$work/build" "$work/build-gone" # nothing may need it
root=$work/moved
library=$root/lib64
for file in bin/neap include/neap/neap.h; do
	tried "$file is there" test -s "$root/$file"
done
tried "the simulator is there" test -s "$library/neap/sim/libcuda.so.1" -a -s "$library/neap/sim/libnvidia-ml.so.1"
for major in 12 13; do
	tried "the stand-in for libcudart.so.$major is there" test -s "$library/neap/sim/runtime/libcudart.so.$major"
done
tried "no path to where it was built is searched for libraries" \
	sh -c '! readelf -d "$1"/bin/neap "$2"/libneap.so.0 | grep -E "R(UN)?PATH.*$3"' - "$root" "$library" "$work"
tried "neap --version" says "neap $version" "$root/bin/neap" --version
tried "neap info, on the installed simulator" says "Simulated GPU 1024 MiB" "$root/bin/neap" info
tried "neap sim env" says "export NEAP_SIM_RUNTIME='$library/neap/sim/runtime'" "$root/bin/neap" sim env
tried "neap run" "$root/bin/neap" run --quiet -- true
tried "neap history" says "true" "$root/bin/neap" history

compiles_alone() {
	local header
	for header in "$root"/include/neap/*.h; do
		echo "#include <neap/$(basename "$header")>" >one.c
		gcc -std=c17 -pedantic -Wall -Werror -I"$root/include" -fsyntax-only one.c || return
	done
}
tried "each of the $(find "$root/include/neap" -name '*.h' | wc -l) headers by itself, C17, pedantic" compiles_alone
cat >use.c <<'C'
#include <neap/neap.h>
#include <stdio.h>
int main(void)
{
	struct neap_driver *driver;
	struct neap_device *device;
	struct neap_alloc *alloc;
	struct neap_error err = {0};
	uint64_t address;
	if (neap_driver_open(NEAP_BACKEND_DEFAULT, &driver, &err) != NEAP_OK ||
	    neap_device_open(driver, 0, &device, &err) != NEAP_OK || neap_alloc_create(device, NULL, &alloc, &err) != NEAP_OK ||
	    neap_malloc(alloc, 5 << 20, NULL, &address, &err) != NEAP_OK) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	puts("five");
	neap_free(alloc, address);
	neap_alloc_destroy(alloc);
	neap_device_close(device);
	neap_driver_close(driver);
	return 0;
}
C
tried "a program against what is installed" gcc -std=c17 -Wall -Werror -I"$root/include" use.c -L"$library" -lneap \
	-Wl,-rpath,"$library" -o use
tried "... uses the simulator beside libneap" says five ./use
tried "... under neap run, attached" says "5.00 MiB allocated" "$root/bin/neap" run -- ./use
