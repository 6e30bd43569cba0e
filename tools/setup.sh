# tools/setup.sh: sourced by ./run, ./test and packaging/*.sh: installs what is missing and configures a build folder.
#
#   need_packages PACKAGE...     installs the Debian packages that are not there (root or sudo), or names them and ends
#   want_packages PACKAGE...     likewise, but continues where they cannot be installed
#   configure FOLDER [ARG...]    meson setup, once; a folder that no longer fits is made again
#   build FOLDER [TARGET...]     ninja, with its progress on stderr
#   report WHAT COMMAND...       a long silent command, with the time that it has taken on stderr

build_packages="gcc libc6-dev meson ninja-build pkg-config python3 libjansson-dev libfyaml-dev libsqlite3-dev \
libzstd-dev zlib1g-dev libncurses-dev libmicrohttpd-dev libcmocka-dev bats libjs-dygraphs"
test_packages="clang-format g++ jq tmux python3-venv python3-jsonschema valgrind"
# Without these the test against a real Slurm is skipped.
slurm_packages="slurmctld slurmd slurm-client munge"
# Without it neap serve's metrics are not checked by promtool, nor scraped.
metrics_packages="prometheus"

say() { printf '%s\n' "$*" >&2; }

# report_time WHAT: a line every 10 s (on a terminal one line, every second), until stdin is closed.
report_time() {
	local start=$SECONDS every=${report_every:-10} terminal=no
	if [ -t 2 ] && [ "${TERM:-dumb}" != dumb ]; then every=1 terminal=yes; fi
	until read -rt "$every" || [ $? -le 128 ]; do
		if [ "$terminal" = yes ]; then
			printf '\r%s: %d s\033[K' "$1" $((SECONDS - start)) >&2
		else
			say "$1: $((SECONDS - start)) s"
		fi
	done
	[ "$terminal" = no ] || printf '\r\033[K' >&2
}

report() {
	local what=$1 timer status=0
	shift
	exec {timer}> >(report_time "$what")
	local reporter=$!
	"$@" {timer}>&- || status=$?
	exec {timer}>&-
	wait "$reporter"
	return "$status"
}

quiet() { "$@" >/dev/null 2>&1; }

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
	say "Installing Debian packages, which may take minutes: ${missing[*]}"
	local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends)
	if ! report "Installing" quiet "${install[@]}" "${missing[@]}"; then
		"${as_root[@]}" apt-get update -qq >&2 && "${install[@]}" "${missing[@]}" >&2 || {
			say "apt-get could not install: ${missing[*]}"
			exit 69
		}
	fi
}

# want_packages PACKAGE...: likewise, but continues without those that cannot be installed.
want_packages() {
	(need_packages "$@") || say "Going on without: $*"
}

configure() {
	local folder=$1
	shift
	if [ -f "$folder/build.ninja" ] && meson introspect "$folder" --projectinfo >/dev/null 2>&1; then
		return 0
	fi
	say "Configuring ($folder/)"
	rm -rf "$folder"
	meson setup "$folder" "$@" >"/tmp/neap-configure-$$.log" 2>&1 || {
		cat "/tmp/neap-configure-$$.log" >&2
		rm -f "/tmp/neap-configure-$$.log"
		exit 70
	}
	rm -f "/tmp/neap-configure-$$.log"
}

# Ninja's "[12/837] Compiling ..." as progress: on a terminal one line that is written over, elsewhere a line at each tenth.
# Everything else that ninja says, such as the compiler's errors, is shown as it is.
show_progress() {
	local line step=0 steps percent tenth shown=0 drawn=no
	while IFS= read -r line; do
		if [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\  ]]; then
			step=${BASH_REMATCH[1]} steps=${BASH_REMATCH[2]}
			percent=$((100 * step / steps)) tenth=$((10 * step / steps))
			if [ "$1" = terminal ]; then
				printf '\r %3d %% built (%d of %d steps)\033[K' "$percent" "$step" "$steps" >&2
				drawn=yes
			elif [ "$tenth" -gt "$shown" ]; then
				say "$(printf ' %3d %% built (%d of %d steps)' "$percent" "$step" "$steps")"
				shown=$tenth
			fi
		elif [[ $line != "ninja: no work to do." && $line != "ninja: Entering directory"* ]]; then
			[ "$drawn" = no ] || say ""
			drawn=no
			say "$line"
		fi
	done
	[ "$drawn" = no ] || say ""
}

build() {
	local how=lines
	[ ! -t 2 ] || [ "${TERM:-dumb}" = dumb ] || how=terminal
	say "Building ($1/), which takes minutes the first time"
	ninja -C "$@" 2>&1 | show_progress "$how"
	return "${PIPESTATUS[0]}"
}
