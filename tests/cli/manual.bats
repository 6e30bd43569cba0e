#!/usr/bin/env bats
# The manual pages: one per command, with the words of `neap help COMMAND`, installed where man looks.

bats_require_minimum_version 1.5.0

setup() { pages=$BUILD/src; }

commands() { "$NEAP" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\)  .*/\1/p'; }

# words PAGE: the page without its requests and escapes, on one line
words() { grep -v '^\.' "$1" | sed 's/\\f[BR]//g; s/\\&//g; s/\\-/-/g; s/\\e/\\/g' | tr -s ' \n' ' '; }

@test "a page for neap and for each command, each with its sections in order" {
	for command in $(commands); do
		page=$pages/neap-$command.1
		[ -s "$page" ]
		head -1 "$page" | grep -q "^\.TH NEAP-${command^^} 1 "
		[[ "$(grep '^\.SH' "$page" | tr '\n' ' ')" =~ ^\.SH\ NAME\ \.SH\ SYNOPSIS\ (\.SH\ DESCRIPTION\ )?\.SH\ OPTIONS ]]
		grep -q "^\.BR neap..$command (1)" "$pages/neap.1"
	done
	[ "$(find "$pages" -maxdepth 1 -name 'neap*.1' | wc -l)" -eq "$(($(commands | wc -l) + 1))" ]
}

@test "a page has every word of the command's help" {
	for command in $(commands); do
		page=$(words "$pages/neap-$command.1")
		for section in '/^Usage:/,/^Options:/{/^Usage:/,/^$/d;/^Options:/d;p}' '/^Options:/,${/^Options:/d;p}'; do
			help=$("$NEAP" help "$command" | sed -n "$section" | tr -s ' \n' ' ')
			echo "$command: ${help# }"
			[[ "$page" == *"${help# }"* ]]
		done
	done
}

@test "man formats the pages without a warning" {
	command -v man >/dev/null && man --warnings -l "$pages/neap.1" >/dev/null 2>&1 || skip "no man that formats a file"
	for page in "$pages"/neap*.1; do
		[ -z "$(LC_ALL=C man --warnings -l "$page" 2>&1 >/dev/null)" ]
	done
}

@test "meson install puts them where man looks" {
	dir=$(mktemp -d)
	meson install -C "$BUILD" --no-rebuild --quiet --destdir "$dir"
	[ -n "$(find "$dir" -path '*/man/man1/neap-run.1')" ]
	rm -r "$dir"
}
