#!/usr/bin/env bash
# packaging/test_bare.sh: neap as a user gets it, on a clean Debian 12 made by debootstrap: ./run, what README's section Install
# and docs/c.md say, line by line, ./test of some suites by an ordinary user, and all of it away again. Needs root, debootstrap
# and a mirror. Prints what it tried; exits 1 at the first thing that fails, 77 where a tool or the right to use it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/common.bash
needs_root_and debootstrap
work=$(mktemp -d "${TMPDIR:-/tmp}/neap-bare-XXXXXX")
root=$work/root
trap remove_debian EXIT

# typed USER LINE...: the lines as that user types them, in his copy of the sources
typed() {
	local user=$1 home=/home/$1
	shift
	[ "$user" != root ] || home=/root
	printf '%s\n' "set -e; cd $home/neap" "$@" >"$root/tmp/lines"
	chroot "$root" su - "$user" -w "$passed_on" -c 'bash /tmp/lines'
}
there() { typed root "$1"; } # of `says`
# How this machine reaches the package index.
passed_on=http_proxy,https_proxy,no_proxy,PIP_INDEX_URL,PIP_DEFAULT_TIMEOUT,PIP_CERT,NEAP_TEST_TORCH
export NEAP_TEST_TORCH=no

# line FILE BEGINNING: the one line of the document that begins so, without its comment
line() {
	local found
	found=$(grep "^$2" "$1") && [ "$(wc -l <<<"$found")" -eq 1 ] || {
		echo "$1 has no single line that begins with '$2'" >&2
		return 1
	}
	sed 's/ *#.*//' <<<"$found"
}
# everything: what is on the system, but for the copies of the sources and what Python caches of its own
everything() {
	(cd "$root" && find etc home opt root usr var \( -path root/neap -o -path home/user/neap -o -path '*/python3*/__pycache__' \) -prune -o \
		-print) | sort
}
nothing_left() {
	local left
	left=$(comm -13 "$work/before" <(everything))
	left+=$(chroot "$root" ldconfig -p | grep neap) || :
	[ -z "$left" ] || {
		echo "$left"
		return 1
	}
}

tried "a clean Debian 12" clean_debian
if [ -n "${PIP_CERT-}" ]; then
	cp -L "$PIP_CERT" "$root/opt/certificates"
	export PIP_CERT=/opt/certificates
fi
chroot "$root" useradd --create-home user # its shell is the default one
sources "$root/root/neap"
cp -r "$root/root/neap" "$root/home/user/neap"
chroot "$root" chown -R user:user /home/user
sed -n '/^```c$/,/^```$/{/^```/d;p}' docs/c.md >"$root/root/neap/use.c"

tried "./run" says "mixed-checkpointed" ./run
install=$(line README.md 'meson install')
uninstall=$(line README.md 'ninja -C build uninstall')
everything >"$work/before"
tried "$install" typed root "$install"
tried "neap, found on PATH" says "Simulated GPU 1024 MiB" 'NEAP_DEVICE=sim NEAP_SIM=mem=1GiB neap info'
tried "neap run of a Python program" says "exit status 0" \
	'NEAP_DEVICE=sim neap run -- python3 -c "import neap, neap.hooks, neap.integrations; print(neap.version())"; rm -r ~/.local'
tried "neap sim env" says "/neap/sim/runtime" 'neap sim env'
for document in README.md docs/c.md; do
	command=$(line "$document" 'cc use.c $(pkg-config')
	tried "$document: $command" says "5.00 MiB at 0x" "$command -o use; NEAP_DEVICE=sim ./use; rm use"
done
tried "$install, again" typed root "$install"
tried "$uninstall" typed root "${uninstall%;*}"
tried "... leaves nothing" nothing_left
tried "the packages that ./test needs" typed root '. tools/setup.sh; need_packages $build_packages $test_packages'
pip=$(line README.md 'python3 -m venv')
tried "$pip" typed user "$pip"
tried "the command of the Python package" says "neap " 'su - user -c "neap/venv/bin/neap --version"'
tried "${uninstall#*; }" typed user "${uninstall#*; }"
tried "./test cli documents, as an ordinary user" typed user './test cli documents'
