# packaging/common.bash: what the scripts of this folder share. They source it from the root of the tree.

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

# tried WHAT COMMAND...: runs it; its output is shown when it fails. Needs $work.
tried() {
	local what=$1
	shift
	if ! "$@" >"$work/output" 2>&1; then
		printf 'FAIL  %s: %s\n' "$what" "$*" >&2
		tail -40 "$work/output" >&2
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
