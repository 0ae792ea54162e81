#compdef fdl
# Completion of fdl in zsh: eval "$(fdl completions zsh)"
_fdl() {
    local -a found
    local text what
    while IFS=$'\t' read -r text what; do
        found+=("${text//:/\\:}:$what")
    done < <(fdl __complete zsh "$((CURRENT - 1))" -- "${words[@]}" 2> /dev/null)
    if (( $#found )); then
        _describe fdl found
    else
        _files
    fi
}
compdef _fdl fdl
