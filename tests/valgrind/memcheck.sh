#!/bin/sh
# memcheck.sh SANITIZER quick|long VALGRIND-OPTION PROGRAM [ARG...]: runs the program under valgrind. Any memory
# error, and any block at its end that nothing points to, fails it. 77 (skipped) if valgrind is missing or cannot be
# used, and for `long` without NEAP_LONG=1.
sanitizer=$1 length=$2 option=$3
shift 3
[ "$sanitizer" = none ] || {
	echo "skipped: the sanitizer of this build ($sanitizer) and valgrind cannot watch the same program"
	exit 77
}
[ "$length" = quick ] || [ -n "${NEAP_LONG-}" ] || {
	echo "skipped: only with NEAP_LONG=1"
	exit 77
}
command -v valgrind >/dev/null || {
	echo "skipped: valgrind is not installed"
	exit 77
}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder" /dev/shm/*memcheck-$$*' EXIT
# Under meson's MALLOC_PERTURB_ a block that was never written would count as written.
unset MALLOC_PERTURB_
mkdir -m 700 "$folder/runtime"
cd "$folder" && NEAP_SIM=mem=64MiB,world=memcheck-$$ XDG_RUNTIME_DIR=$folder/runtime XDG_STATE_HOME=$folder/state \
	valgrind --quiet "$option" --error-exitcode=9 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite "$@"
