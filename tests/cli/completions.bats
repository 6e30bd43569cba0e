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

# zsh_completes LINE TEXT: checks that a zsh on its own terminal shows TEXT after LINE and a tab
zsh_completes() {
	timeout 60 zsh -fc 'zmodload zsh/zpty
		zpty terminal "PS1= zsh -fi"
		zpty -w terminal "fpath=($1 \$fpath); autoload -U compinit; compinit -u -D; setopt nolistambiguous; stty columns 200; echo read\"\"y"
		zpty -r terminal seen "*ready*"
		zpty -n -w terminal "$2"$'"'\t'"'
		zpty -r terminal seen "*$3*" && zpty -d terminal' - "$completions" "$1" "$2"
}

# hold_memory: an attached process and another one, $attached and $other
hold_memory() {
	export NEAP_DEVICE=sim NEAP_SIM_PATH=$BUILD/sim/driver NEAP_SIM="mem=256MiB,world=completions-$$" XDG_RUNTIME_DIR=$BATS_TEST_TMPDIR
	export LD_LIBRARY_PATH=$BUILD/sim/driver:$BUILD/src PATH=$BUILD/src:$PATH
	NEAP_ATTACH=1 "$BUILD/tests/cli/hold" --for 600000 10M 3>&- &
	attached=$!
	"$BUILD/tests/cli/hold" --for 600000 10M 3>&- &
	other=$!
	until [ "$(neap info --csv | grep -c "hold --for")" -eq 2 ] && neap info --csv | grep -q ",$attached,.*,1,"; do sleep 0.05; done
}

teardown() {
	[ -z "${other:-}" ] || kill "$attached" "$other"
	rm -f "/dev/shm/neap-sim-$(id -u)-completions-$$"
}

@test "GPUs after --gpu, also in a list" {
	[ "$(complete_bash neap check --gpu h)" = "h100-80gb h200-141gb" ]
	[ "$(complete_bash neap estimate --gpu rtx4)" = "rtx4090-24gb rtx4060-8gb" ]
	[ "$(complete_bash neap estimate --gpu h100-80gb,8xt)" = "h100-80gb,8xt4-16gb" ]
	[ "$(complete_bash neap estimate --gpu 2xl4-24gb,he)" = "2xl4-24gb,here" ]
	[ -z "$(complete_bash neap check --gpu h100-80gb,)" ]
	[ "$(complete_bash neap estimate --gpu "" | wc -w)" -eq $(("$("$NEAP" sim profiles | grep -c '^[a-z0-9]*-[0-9]*gb ')" + 1)) ]
	if command -v zsh >/dev/null; then
		export PATH=$BUILD/src:$PATH
		zsh_completes 'neap check --gpu l4' 'check --gpu l4-24gb'
		zsh_completes 'neap estimate --gpu h100-80gb,8xt4' '--gpu h100-80gb,8xt4-16gb'
		zsh_completes 'neap estimate --gpu 2xher' '--gpu 2xhere'
	fi
	if command -v fish >/dev/null; then
		export HOME=$BATS_TEST_TMPDIR
		[ "$(complete_fish 'neap check --gpu h')" = "h100-80gb h200-141gb " ]
		[ "$(complete_fish 'neap estimate --gpu h100-80gb,8xt')" = "h100-80gb,8xt4-16gb " ]
		[ "$(complete_fish 'neap estimate --gpu=h100-80gb,he')" = "--gpu=h100-80gb,here " ]
	fi
}

@test "processes after kill and --pid: those that the command can end" {
	hold_memory
	both=$(printf '%s\n' "$attached" "$other" | sort -n | tr '\n' ' ')
	[ "$(complete_bash neap kill "") " = "$both" ]
	[ "$(complete_bash neap kill "$attached" --pid "") " = "$both" ]
	[ "$(complete_bash neap info --pid "") " = "$both" ]
	for command in clear reset fraction explain; do
		[ "$(complete_bash neap $command --pid "")" = "$attached" ]
	done
	[ "$(complete_bash neap kill "${other%?}" | tr ' ' '\n' | grep -cx "$other")" -eq 1 ]
	[ -z "$(complete_bash neap kill x)" ]
	if command -v zsh >/dev/null; then
		zsh_completes 'neap clear --pid ' "clear --pid $attached"
		zsh_completes "neap kill " "$other" # in the list of both
	fi
	if command -v fish >/dev/null; then
		export HOME=$BATS_TEST_TMPDIR
		[ "$(complete_fish 'neap kill ')" = "$both" ]
		[ "$(complete_fish 'neap clear --pid ')" = "$attached " ]
	fi
}

@test "zsh accepts its file" {
	command -v zsh >/dev/null || skip "needs zsh"
	zsh -n "$completions/_neap"
}

@test "fish offers the same words" {
	command -v fish >/dev/null || skip "needs fish"
	export HOME=$BATS_TEST_TMPDIR
	[ "$(complete_fish 'neap kil')" = "kill " ]
	[ "$(complete_fish 'neap kill --d')" = "--device --drain-limit --dry-run " ]
	[ "$(complete_fish 'neap checkpoints --mode ')" = "max min " ]
	[[ " $(complete_fish 'neap run --name x -- cat /etc/host') " == *" /etc/hosts "* ]]
	[[ " $(complete_fish 'neap run -- mkdi') " == *" mkdir "* ]]
}
