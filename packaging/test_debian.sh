#!/usr/bin/env bash
# packaging/test_debian.sh: builds the Debian packages, has lintian look at them, installs them into a clean Debian 12 made by
# debootstrap, and uses them there as a user would. Needs root, debootstrap, lintian, debhelper and a mirror. Prints what it
# tried; exits 1 at the first thing that fails, 77 where a tool or the right to use it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/common.bash
needs_root_and debootstrap lintian dh dh_python3
version=$(sed -n "s/^ *version: '\(.*\)',/\1/p" meson.build | head -1)
work=$(mktemp -d "${TMPDIR:-/tmp}/neap-debian-XXXXXX")
root=$work/root
trap remove_debian EXIT

# there COMMAND...: in the clean Debian
there() { chroot "$root" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root NEAP_DEVICE=sim NEAP_SIM=mem=1GiB "$@"; }
checked() { # lintian ends with 0 when it finds a warning
	lintian --fail-on error,warning --allow-root "$@"
}

tried "the packages are built" packaging/debian.sh "$work/packages"
tried "lintian finds nothing" checked "$work"/packages/*.changes
tried "a clean Debian 12" clean_debian
cp "$work"/packages/*.deb "$root/tmp"
rm -f "$root"/tmp/*dbgsym*
tried "the packages are installed, with what they need" says "neap ($version)" sh -c \
	'DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends /tmp/*.deb'
tried "neap --version" says "neap $version" neap --version
tried "neap info, on the simulator" says "Simulated GPU 1024 MiB" neap info
tried "neap run" says "exit status 0" neap run --name sleep -- sleep 0.1
tried "neap history" says "sleep" neap history
tried "neap top --once" says "Simulated GPU 1024 MiB" neap top --once
tried "neap serve" says "neap_" bash -c 'neap serve --listen 127.0.0.1:9401 >/tmp/serving & sleep 2
	exec 3<>/dev/tcp/127.0.0.1/9401; printf "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n" >&3; cat <&3; kill %1'
tried "the Python package" says "$version" python3 -c 'import neap; print(neap.version())'
tried "neap run starts a Python program attached" says "ok, exit status 0" neap run -- python3 -c 'import neap; neap.version()'
tried "the manual" says "neap-run" sh -c 'zcat /usr/share/man/man1/neap-run.1.gz | head -1 | tr A-Z a-z'
tried "the completions" says "kill" bash -c '. /usr/share/bash-completion/completions/neap; COMP_WORDS=(neap ki) COMP_CWORD=1; _neap; echo $COMPREPLY'
tried "a program against libneap-dev" says "-lneap" sh -c \
	'DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends pkg-config gcc libc6-dev >/dev/null && cd /tmp &&
	printf "#include <neap/neap.h>\nint main(void) { return !neap_version(); }\n" >use.c && gcc use.c $(pkg-config --cflags --libs neap) -o use &&
	./use && pkg-config --libs neap'
tried "the packages are removed" says "Removing neap" sh -c 'apt-get purge -y neap libneap0 libneap-dev python3-neap'
tried "nothing of them is left" says "none" sh -c '! find /usr /etc /var/lib -xdev -name "*neap*" ! -path "/var/lib/apt/*" | grep . && echo none'
