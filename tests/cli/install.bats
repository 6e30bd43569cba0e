#!/usr/bin/env bats
# The installed files, used as docs/c.md shows: pkg-config finds neap, and the page's program compiles and runs, with
# the build folder and with an installation.

bats_require_minimum_version 1.5.0

setup() {
	dir="$(mktemp -d)"
	export HOME="$dir" NEAP_DEVICE=sim NEAP_SIM="mem=256MiB,world=install-$$-$BATS_TEST_NUMBER"
	unset NEAP_SIM_PATH NEAP_ATTACH LD_LIBRARY_PATH
	# The page's C program, and the sanitizer that the library was built with.
	sed -n '/^```c/,/^```/{/^```/d;p}' "$SOURCE/docs/c.md" >"$dir/use.c"
	sanitize=()
	[ "$SANITIZE" = none ] || sanitize=("-fsanitize=$SANITIZE")
}

teardown() { rm -rf "$dir" "/dev/shm/"*"install-$$-$BATS_TEST_NUMBER"; }

# shown WORDS: the only line of the page that begins with WORDS
shown() {
	local line
	line=$(grep "^$1" "$SOURCE/docs/c.md")
	[ -n "$line" ] || return 1
	printf '%s\n' "${line%%#*}"
}

works() {
	run --separate-stderr ./use
	echo "$output$stderr"
	[ "$status" -eq 0 ]
	[ "$(sed 's/0x[0-9a-f]*$/ADDRESS/' <<<"$output")" = "5.00 MiB at ADDRESS" ]
}

@test "the page's program, compiled without an installation" {
	ln -s "$SOURCE/include" "$dir/include"
	ln -s "$BUILD" "$dir/build"
	cd "$dir"
	command=$(shown 'cc use.c -Iinclude')
	eval "$command ${sanitize[*]} -Wall -Werror"
	works
}

@test "meson install: pkg-config finds it, and the page's program is compiled with it" {
	meson install -C "$BUILD" --no-rebuild --quiet --destdir "$dir/staged"
	file=$(find "$dir/staged" -name neap.pc)
	[ -s "$file" ]
	root=$dir/staged/$(pkg-config --variable=prefix "$file")
	pkg-config() { command pkg-config --define-variable=prefix="$root" "$@"; }
	export PKG_CONFIG_PATH=${file%/*}
	[ "$(pkg-config --modversion neap)" = "$("$NEAP" --version | sed -n '1s/^neap //p')" ]
	[ -s "$(pkg-config --variable=includedir neap)/neap/neap.h" ]
	cd "$dir"
	command=$(shown 'cc use.c \$(pkg-config')
	eval "$command ${sanitize[*]} -Wall -Werror"
	export LD_LIBRARY_PATH=$(pkg-config --variable=libdir neap)
	works
	[ "$(ldd ./use | awk '$1 == "libneap.so.0" { print $3 }')" = "$LD_LIBRARY_PATH/libneap.so.0" ]
}

@test "neap/neap.h includes every public header" {
	echo '#include <neap/neap.h>' | cc -I"$SOURCE/include" -M -xc - | tr ' ' '\n' | sed -n 's/.*include\/neap\///p' | sort >"$dir/has"
	(cd "$SOURCE/include/neap" && ls) | sort >"$dir/all"
	diff "$dir/all" "$dir/has"
}

@test "every public header by itself, C17 and C++17, pedantic" {
	for header in "$SOURCE"/include/neap/*.h; do
		echo "#include <neap/${header##*/}>" | cc -std=c17 -pedantic -Wall -Wextra -Werror -I"$SOURCE/include" -fsyntax-only -xc -
		! command -v c++ || echo "#include <neap/${header##*/}>" |
			c++ -std=c++17 -pedantic -Wall -Werror -I"$SOURCE/include" -fsyntax-only -xc++ -
	done
}

@test "what the headers promise of all functions: order of arguments, NULL for what ends an object" {
	# Outputs after inputs, the error last.
	cat "$SOURCE"/include/neap/*.h | tr '\n\t' '  ' | grep -oE 'NEAP_API [^;{]*\([^;]*\);' >"$dir/declared"
	[ "$(wc -l <"$dir/declared")" -gt 80 ]
	run ! grep -E 'err,' "$dir/declared"
	run ! grep -E 'ret_[a-z_]*, +(const [^,)]*|uint[0-9]+_t|int|bool|double|enum [a-z_]+) +[a-qs-z]' "$dir/declared"
	cat >"$dir/ends.c" <<'C'
#include <neap/neap.h>
int main(void)
{
	struct neap_scope scope = {0};
	struct neap_trial trial = {0};
	struct neap_device_guard guard = {0};
	struct neap_driver *driver = NULL;
	neap_driver_close(NULL);
	neap_device_close(NULL);
	neap_alloc_destroy(NULL);
	neap_checkpoint_abort(NULL);
	neap_recorder_destroy(NULL);
	neap_retention_plan_fini(NULL);
	neap_train_end(NULL, NULL);
	neap_scope_end(&scope);
	neap_trial_end(&trial, NULL);
	neap_device_leave(&guard);
	return neap_driver_open(NEAP_BACKEND_SIM + 1, &driver, NULL) == NEAP_OK || driver;
}
C
	cc "${sanitize[@]}" -I"$SOURCE/include" "$dir/ends.c" -L"$BUILD/src" -lneap -Wl,-rpath,"$BUILD/src" -o "$dir/ends"
	"$dir/ends"
}

@test "libneap exports exactly the functions that packaging/debian/libneap0.symbols lists, each with its version" {
	"$SOURCE/packaging/symbols.sh" "$BUILD/src/libneap.so"
}
