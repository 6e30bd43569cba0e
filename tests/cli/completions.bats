#!/usr/bin/env bats
# The completions that the build makes for bash, zsh and fish.

bats_require_minimum_version 1.5.0

setup() { completions=$BUILD/src; }

# complete_bash WORD...: what bash offers for the last word, on one line
complete_bash() {
	bash -c '. "$0"; compopt() { :; }; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _neap; echo "${COMPREPLY[*]}"' \
		"$completions/neap.bash" "$@"
}
complete_fish() { fish -c 'source $argv[1]; complete -C "$argv[2]"' "$completions/neap.fish" "$1" | cut -f1 | tr '\n' ' '; }

@test "bash: commands, options, choices, topics, and a command after --" {
	[ "$(complete_bash neap ki)" = "kill" ]
	[ "$(complete_bash neap --color always ki)" = "kill" ]
	[ "$(complete_bash neap kill --d)" = "--device --dry-run --drain-limit" ]
	[ "$(complete_bash neap checkpoints . --mode "")" = "min max" ]
	[ "$(complete_bash neap info --color a)" = "auto always" ]
	[ "$(complete_bash neap explain fra)" = "fragmentation" ]
	[ "$(complete_bash neap sim p)" = "path profiles" ]
	[[ " $(complete_bash neap run --name x -- tru) " == *" true "* ]]
	[ "$(complete_bash neap analyze "$SOURCE/LICEN")" = "$SOURCE/LICENSE" ]
	[ -z "$(complete_bash neap kill --grace "")" ]
}

@test "every option of every command is offered by each shell" {
	for command in $("$NEAP" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\)  .*/\1/p'); do
		help=$("$NEAP" help "$command" | sed -n '/^Options:/,$s/^  \(-., \)\?--\([a-z-]*\).*/\2/p')
		offered=$(complete_bash neap "$command" --)
		for option in $help; do
			[[ " $offered " == *" --$option "* ]]
			grep -q -- "from $command;.* -l $option " "$completions/neap.fish"
			sed -n "/^	$command)/,/^		;;/p" "$completions/_neap" | grep -qF -- "'*--$option["
		done
	done
}

@test "zsh takes its file" {
	command -v zsh >/dev/null || skip "needs zsh"
	zsh -n "$completions/_neap"
}

@test "fish offers the same" {
	command -v fish >/dev/null || skip "needs fish"
	export HOME=$BATS_TEST_TMPDIR
	[ "$(complete_fish 'neap kil')" = "kill " ]
	[ "$(complete_fish 'neap kill --d')" = "--device --drain-limit --dry-run " ]
	[ "$(complete_fish 'neap checkpoints --mode ')" = "max min " ]
	[[ " $(complete_fish 'neap run --name x -- cat /etc/host') " == *" /etc/hosts "* ]]
	[[ " $(complete_fish 'neap run -- mkdi') " == *" mkdir "* ]]
}
