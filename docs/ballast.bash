# bash completion for ballast. Installed; or: source docs/ballast.bash
# shellcheck shell=bash

_ballast_words() { # WORD CANDIDATE...
    local word=$1
    shift
    mapfile -t COMPREPLY < <(compgen -W "$*" -- "$word")
}

_ballast_files() { # WORD
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

# Names in the lines "  kind  name name ..." of `ballast plugins`; tokens of a help text.
_ballast_plugins() { "${COMP_WORDS[0]}" plugins 2>/dev/null | awk '/^  [a-z]/ { print $2 }'; }
_ballast_options() { "${COMP_WORDS[0]}" "$@" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]+' | sort -u; }
_ballast_commands() { "${COMP_WORDS[0]}" --help 2>/dev/null | sed -n 's/^  \([a-z]*\)  .*/\1/p'; }

_ballast() {
    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]:-}
    local kinds="regularizer precision schedule monitor optimizer guard sink source tokenizer"
    local groups="config run model data batch optimizer optimizer.rules schedule precision cluster
        regularizers guards monitors sinks alarms"
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        _ballast_words "$word" "$(_ballast_commands) help --help --version"
    elif [[ $word == -* ]]; then
        _ballast_words "$word" "$(_ballast_options "$command")"
    elif [ "$command" = reduce ] && [ "${COMP_WORDS[COMP_CWORD - 1]}" = --algorithm ]; then
        _ballast_words "$word" "all alltoall ring tree nvls pairwise hybrid"
    elif [ "$command" = reduce ] && [ "${COMP_WORDS[COMP_CWORD - 1]}" = --average ]; then
        _ballast_words "$word" "divide divide_first premultiply predivide"
    elif [ "$command" = reduce ] && [ "${COMP_WORDS[COMP_CWORD - 1]}" = --values ]; then
        _ballast_words "$word" "normal lognormal ones cancel"
    elif [ "$command" = help ]; then
        _ballast_words "$word" "$(_ballast_commands) $groups"
    elif [ "$command" = plugins ]; then
        _ballast_words "$word" "$(_ballast_plugins) $kinds"
    elif [ "$COMP_CWORD" -eq 2 ] && [ "$command" = plugin ]; then
        _ballast_words "$word" "new test"
    elif [ "$COMP_CWORD" -eq 3 ] && [ "$command ${COMP_WORDS[2]}" = "plugin new" ]; then
        _ballast_words "$word" "$kinds"
    elif [ "$COMP_CWORD" -eq 2 ] && [ "$command" = data ]; then
        _ballast_words "$word" "pack info verify"
    else
        _ballast_files "$word"
    fi
}

complete -F _ballast ballast
