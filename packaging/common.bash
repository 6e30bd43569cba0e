# packaging/common.bash: what the scripts of this folder share.
. "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"

# output_folder FOLDER: makes it; its path is in $out, and in $work a folder that is removed at the end.
output_folder() {
	[ $# -eq 1 ] || {
		echo "usage: $0 FOLDER" >&2
		exit 64
	}
	mkdir -p "$1"
	out=$(cd "$1" && pwd)
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
}

# logged COMMAND...: its output is shown when it fails. Needs $work.
logged() {
	"$@" >>"$work/log" 2>&1 || {
		local status=$?
		cat "$work/log" >&2
		return "$status"
	}
}

# tried WHAT COMMAND...: runs it; its output is shown when it fails. Needs $work.
tried() {
	local what=$1
	shift
	if ! "$@" >"$work/output" 2>&1; then
		printf 'FAIL  %s: %s\n' "$what" "$*" >&2
		tail -200 "$work/output" >&2
		exit 1
	fi
	printf 'ok    %s\n' "$what"
}

# says WORDS COMMAND...: the command succeeds where the package is installed (`there`, of the script) and prints the words.
says() {
	local words=$1
	shift
	there "$@" >"$work/said" 2>&1 && grep -qF -- "$words" "$work/said" && return
	echo "Status $?, and what it says should have in it '$words':"
	cat "$work/said"
	return 1
}

# needs_root_and TOOL...: exits 77 where one of them is missing.
needs_root_and() {
	local tool
	export PATH=$PATH:/usr/sbin
	for tool in "$@"; do
		command -v "$tool" >/dev/null || {
			echo "skipped: $tool is not installed"
			exit 77
		}
	done
	[ "$(id -u)" -eq 0 ] || {
		echo "skipped: only root can make a clean Debian"
		exit 77
	}
}

# clean_debian: a Debian 12 of debootstrap's smallest set, in $root, with the mounts that programs expect. remove_debian removes
# it, and $work.
clean_debian() {
	debootstrap --variant=minbase bookworm "$root"
	mount -t proc proc "$root/proc"
	mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
	mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
}
remove_debian() {
	local folder
	for folder in proc dev/pts dev/shm; do
		! mountpoint -q "$root/$folder" || umount -l "$root/$folder"
	done
	rm -rf --one-file-system "$work"
}

# sources FOLDER: copies the tree there, the files that git knows; all of it where there is no git.
sources() {
	mkdir -p "$1"
	if git ls-files >"$work/files" 2>/dev/null; then
		tar -c --ignore-failed-read -T "$work/files" | tar -x -C "$1"
	else
		tar -c --exclude='./build*' . | tar -x -C "$1"
	fi
}
