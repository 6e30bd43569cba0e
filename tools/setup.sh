# tools/setup.sh: sourced by ./run and ./test: installs what is missing and configures a build folder.
#
#   need_packages PACKAGE...     installs the Debian packages that are not there (root or sudo), or names them and ends
#   want_packages PACKAGE...     likewise, but goes on where they cannot be had
#   configure FOLDER [ARG...]    meson setup, once; a folder that no longer fits is made anew

build_packages="gcc libc6-dev meson ninja-build pkg-config python3 libjansson-dev libfyaml-dev libsqlite3-dev \
libzstd-dev zlib1g-dev libcmocka-dev bats libjs-dygraphs"
test_packages="jq python3-venv valgrind"
# Without these the test against a real Slurm is skipped.
slurm_packages="slurmctld slurmd slurm-client munge"

say() { printf '%s\n' "$*" >&2; }

need_packages() {
	local missing=() package
	for package in "$@"; do
		dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
	done
	[ ${#missing[@]} -eq 0 ] && return 0
	local as_root=()
	if [ "$(id -u)" -ne 0 ]; then
		if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
			as_root=(sudo -n)
		elif command -v sudo >/dev/null && [ -t 0 ]; then
			as_root=(sudo)
		else
			say "neap needs these Debian packages, and neither root nor sudo is there to install them: ${missing[*]}"
			exit 69
		fi
	fi
	say "Installing Debian packages: ${missing[*]}"
	local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends)
	if ! "${install[@]}" "${missing[@]}" >/dev/null 2>&1; then
		"${as_root[@]}" apt-get update -qq >&2 && "${install[@]}" "${missing[@]}" >&2 || {
			say "apt-get could not install: ${missing[*]}"
			exit 69
		}
	fi
}

# want_packages PACKAGE...: likewise, but goes on without those that cannot be had.
want_packages() {
	(need_packages "$@") || say "Going on without: $*"
}

configure() {
	local folder=$1
	shift
	if [ -f "$folder/build.ninja" ] && meson introspect "$folder" --projectinfo >/dev/null 2>&1; then
		return 0
	fi
	rm -rf "$folder"
	meson setup "$folder" "$@" >"/tmp/neap-configure-$$.log" 2>&1 || {
		cat "/tmp/neap-configure-$$.log" >&2
		rm -f "/tmp/neap-configure-$$.log"
		exit 70
	}
	rm -f "/tmp/neap-configure-$$.log"
}
