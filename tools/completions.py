#!/usr/bin/env python3
"""completions.py NEAP FOLDER: writes neap.bash, _neap (zsh) and neap.fish into FOLDER, from what `neap help` and
`neap help COMMAND` print, as tools/manual.py makes the manual pages.

    after `neap`              the commands
    after `neap COMMAND`      its options; what a choice offers (min|max); files elsewhere
    after --gpu               the profiles of GPUs; where it takes a list also after a comma and after 8x
    after --pid, `neap kill`  the processes that `neap info` lists; the attached ones for what only they can do
    after --                  a command, where COMMAND takes one
"""
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

PATHS = {"FILE", "DIR", "OUT", "PATH", "TRACE", "LOG", "RUNFOLDER", "FOLDER"}


# A row of `neap info --csv` with a process. {0}: whether it is attached (1, 0, or both); 1: its PID, 4: its command.
PROCESS = r's/^[0-9]+,[^,]*,([0-9]+),("(([^"]|"")*)"|[^,]*),{0},.*/{1}/p'
ANY_PROCESS = {"kill", "info"}  # commands that also take processes that are not attached


class Option(NamedTuple):
    name: str
    letter: str  # "" without one
    value: str  # "" for a flag
    help: str

    def choices(self) -> list[str]:
        """The choices in a value such as min|max, and those of --color and --log-level."""
        if "|" in self.value:
            return self.value.split("|")
        named = {"color": "auto always never", "log-level": "debug info warning error"}
        return named.get(self.name, "").split()


class Command(NamedTuple):
    name: str
    summary: str
    options: list[Option]
    words: list[str]  # its first operand is one of these; none: a file
    starts_command: bool  # the words after -- are a command of their own

    def takes_pids(self) -> bool:
        """Whether the command's operands are processes."""
        return self.name == "kill"

    def attached(self) -> str:
        """The part of PROCESS for the processes that the command takes."""
        return "[01]" if self.name in ANY_PROCESS else "1"


def printed(neap: str, *words: str) -> list[str]:
    return subprocess.run([neap, *words], check=True, capture_output=True, encoding="ascii").stdout.splitlines()


def options_of(lines: list[str]) -> list[Option]:
    found: list[Option] = []
    for line in lines:
        match = re.match(r"  (?:-(\w), )?--([a-z-]+)(?:\[=\S+\])?(?: (\S+))?(?:  +(.*))?$", line)
        if match:
            found.append(Option(match[2], match[1] or "", match[3] or "", match[4] or ""))
        elif found and line.strip():
            last = found.pop()
            found.append(last._replace(help=f"{last.help} {line.strip()}".strip()))
    return found


def operands_of(name: str, usage: str, commands: list[str], topics: list[str]) -> list[str]:
    if name == "help":
        return commands + ["agent"]
    if name == "explain":
        return topics
    first = usage.split()[2].strip("[]")
    return first.split("|") if re.fullmatch(r"[a-z]+(\|[a-z]+)+", first) else []


def commands_of(neap: str) -> list[Command]:
    lines = printed(neap, "help")
    rows = lines[lines.index("Commands:") + 1:]
    summaries = dict(row.split(maxsplit=1) for row in rows[:rows.index("")])
    topics = [line.split()[0] for line in printed(neap, "explain") if re.match(r"  [a-z-]+  ", line)]
    found = []
    for name, summary in summaries.items():
        page = printed(neap, "help", name)
        usage = next(line for line in page if line.startswith("Usage: ")).removeprefix("Usage: ")
        words = operands_of(name, usage, list(summaries), topics) if len(usage.split()) > 2 else []
        found.append(Command(name, summary, options_of(page[page.index("Options:") + 1:]), words, "-- COMMAND" in usage))
    return found


def profiles_of(neap: str) -> list[str]:
    return [line.split()[0] for line in printed(neap, "sim", "profiles") if re.match(r"[a-z0-9]+-[0-9]+gb ", line)]


def flags(option: Option) -> list[str]:
    return [f"--{option.name}"] + ([f"-{option.letter}"] if option.letter else [])


def bash(commands: list[Command], profiles: list[str]) -> str:
    values = []
    options = []
    words = []
    for command in commands:
        options.append(f"\t{command.name}) options='{' '.join(flag for o in command.options for flag in flags(o))}' ;;")
        if command.words:
            words.append(f"\t{command.name}) words='{' '.join(command.words)}' ;;")
        for option in command.options:
            pattern = "|".join(f"{command.name}:{flag}" for flag in flags(option))
            if option.choices():
                values.append(f"\t{pattern}) COMPREPLY=($(compgen -W '{' '.join(option.choices())}' -- \"$word\")) && return ;;")
            elif option.name == "gpu":
                values.append(f"\t{pattern}) COMPREPLY=($(_neap_gpus {option.value} \"$word\")) && return ;;")
            elif option.name == "pid":
                values.append(f"\t{pattern}) COMPREPLY=($(_neap_pids '{command.attached()}' \"$word\")) && return ;;")
            elif option.value in PATHS:
                values.append(f"\t{pattern}) compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\")) && return ;;")
            elif option.value:
                values.append(f"\t{pattern}) return ;;")
    starts = "|".join(command.name for command in commands if command.starts_command)
    names = " ".join(command.name for command in commands)
    pids = "\n".join(f"\t{c.name}) [[ $word == -* ]] || COMPREPLY=($(_neap_pids '{c.attached()}' \"$word\")) ;;"
                     for c in commands if c.takes_pids())
    return f"""# bash completion for neap
_neap_pids() {{ # ATTACHED WORD
	compgen -W "$("${{COMP_WORDS[0]}}" info --csv 2>/dev/null | sed -nE '{PROCESS.format("'$1'", chr(92) + "1")}' | sort -un)" -- "$2"
}}
_neap_gpus() {{ # LIST|PROFILE WORD
	local before= names='{" ".join(profiles)}'
	if [[ $1 == LIST ]]; then
		[[ $2 =~ ^(.*,)?([0-9]+x)? ]]
		before=${{BASH_REMATCH[0]}} names+=' here'
	fi
	compgen -P "$before" -W "$names" -- "${{2#"$before"}}"
}}
_neap() {{
	local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command= options= words= at
	COMPREPLY=()
	for ((at = 1; at < COMP_CWORD; at++)); do
		case ${{COMP_WORDS[at]}} in
		--color | --log-level) ((at++)) ;;
		-*) ;;
		*)
			command=${{COMP_WORDS[at]}}
			break
			;;
		esac
	done
	if [[ -z $command ]]; then
		COMPREPLY=($(compgen -W '{names} --help --version' -- "$word"))
		return
	fi
	for ((; at < COMP_CWORD; at++)); do
		case $command:${{COMP_WORDS[at]}} in
		{"|".join(f"{name}:--" for name in starts.split("|"))})
			if declare -F _command_offset >/dev/null; then
				_command_offset $((at + 1))
			else
				COMPREPLY=($(compgen -c -- "$word"))
			fi
			return
			;;
		esac
	done
	case $command:$before in
{chr(10).join(values)}
	esac
	case $command in
{chr(10).join(options)}
	esac
	case $command in
{chr(10).join(words)}
	esac
	case $command in
{pids}
	esac
	((${{#COMPREPLY[@]}} == 0)) || return
	if [[ $word == -* ]]; then
		COMPREPLY=($(compgen -W "$options" -- "$word"))
	elif [[ -n $words ]]; then
		COMPREPLY=($(compgen -W "$words" -- "$word"))
	else
		compopt -o filenames
		COMPREPLY=($(compgen -f -- "$word"))
	fi
}}
complete -F _neap neap
"""


def zsh_quoted(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", text).replace("'", "'\\''")


def zsh_value(command: Command, option: Option) -> str:
    if not option.value:
        return ""
    if option.name in ("gpu", "pid"):
        call = f"_neap_gpus {option.value}" if option.name == "gpu" else f'_neap_pids "{command.attached()}"'
        return f":{option.value}: {call}"  # the space: _arguments adds no arguments of its own
    kind = "_files" if option.value in PATHS else f"({' '.join(option.choices())})" if option.choices() else " "
    return f":{zsh_quoted(option.value)}:{kind}"


def zsh(commands: list[Command], profiles: list[str]) -> str:
    names = "\n".join(f"\t\t'{command.name}:{zsh_quoted(command.summary)}'" for command in commands)
    cases = []
    for command in commands:
        rows = []
        for option in command.options:
            rows += [f"\t\t\t'*{flag}[{zsh_quoted(option.help)}]{zsh_value(command, option)}'" for flag in flags(option)]
        if command.starts_command:
            rows.append("\t\t\t'*::command:_normal'")
        elif command.takes_pids():
            rows.append(f"\t\t\t'*:PID: _neap_pids \"{command.attached()}\"'")
        else:
            rows.append(f"\t\t\t'*:operand:{'(' + ' '.join(command.words) + ')' if command.words else '_files'}'")
        cases.append(f"\t{command.name})\n\t\t_arguments -s \\\n" + " \\\n".join(rows) + "\n\t\t;;")
    return f"""#compdef neap
# zsh completion for neap
_neap_pids() {{ # ATTACHED
	local -a found
	found=(${{(fu)"$(neap info --csv 2>/dev/null | sed -nE '{PROCESS.format("'$1'", chr(92) + "1:" + chr(92) + "3")}')"}})
	_describe process found
}}
_neap_gpus() {{ # LIST|PROFILE
	local -a names
	names=({" ".join(profiles)})
	if [[ $1 == LIST ]]; then
		compset -P '*,'
		compset -P '<->x'
		names+=(here)
	fi
	compadd -a names
}}
_neap() {{
	local -a commands
	commands=(
{names}
	)
	if ((CURRENT == 2)); then
		_describe command commands
		return
	fi
	shift words
	((CURRENT--))
	case $words[1] in
{chr(10).join(cases)}
	esac
}}
_neap "$@"
"""


def fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


FISH_COMMAND = """# fish completion for neap
function __neap_command # what is typed after --; false: there is no --
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words); or return
    set -e words[1..$at]
    string join ' ' -- (string escape -- $words) (commandline -ct)
    return 0 # a single word is not joined, which string reports
end
function __neap_pids # ATTACHED
    neap info --csv 2>/dev/null | sed -nE @PROCESS@ | sort -un
end
function __neap_gpus # LIST or PROFILE
    set -l before ""
    set -l names @PROFILES@
    if test $argv[1] = LIST
        set before (string match -r '^(?:.*,)?(?:[0-9]+x)?' -- (commandline -ct | string replace -r '^--gpu=' ''))
        set -a names here
    end
    printf '%s\\n' $before$names
end
complete -c neap -n "__neap_command >/dev/null" -x -a '(complete -C (__neap_command))'
complete -c neap -n __fish_use_subcommand -f"""


def fish(commands: list[Command], profiles: list[str]) -> str:
    process = "'" + PROCESS.format("'$argv[1]'", "\\1\\t\\3") + "'"
    lines = [FISH_COMMAND.replace("@PROCESS@", process).replace("@PROFILES@", " ".join(profiles))]
    for command in commands:
        lines.append(f"complete -c neap -n __fish_use_subcommand -a {command.name} -d {fish_quoted(command.summary)}")
    for command in commands:
        seen = f"complete -c neap -n '__fish_seen_subcommand_from {command.name}; and not __neap_command >/dev/null'"
        for option in command.options:
            letter = f" -s {option.letter}" if option.letter else ""
            value = ""
            if option.choices():
                value = f" -x -a {fish_quoted(' '.join(option.choices()))}"
            elif option.name == "gpu":
                value = f" -x -a '(__neap_gpus {option.value})'"
            elif option.name == "pid":
                value = f' -x -a \'(__neap_pids "{command.attached()}")\''
            elif option.value:
                value = " -r" if option.value in PATHS else " -x"
            lines.append(f"{seen}{letter} -l {option.name}{value} -d {fish_quoted(option.help)}")
        if command.takes_pids():
            lines.append(f'{seen} -f -a \'(__neap_pids "{command.attached()}")\'')
        if command.words:
            lines.append(f"{seen} -f -a {fish_quoted(' '.join(command.words))}")
    return "\n".join(lines) + "\n"


def main() -> int:
    folder = pathlib.Path(sys.argv[2])
    commands = commands_of(sys.argv[1])
    profiles = profiles_of(sys.argv[1])
    for name, write in (("neap.bash", bash), ("_neap", zsh), ("neap.fish", fish)):
        (folder / name).write_text(write(commands, profiles), encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
