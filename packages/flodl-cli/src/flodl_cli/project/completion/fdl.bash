# Completion of fdl in bash: eval "$(fdl completions bash)"
_fdl() {
    local line="${COMP_LINE:0:COMP_POINT}" typed="" word
    local -a words
    read -ra words <<< "$line"
    case "$line" in *[[:space:]]) words+=("") ;; esac
    typed="${words[-1]}"
    COMPREPLY=()
    while IFS= read -r word; do
        # bash replaces only what stands behind its own word breaks, such as @ and =
        COMPREPLY+=("${word#"${typed%"${COMP_WORDS[COMP_CWORD]}"}"}")
    done < <(fdl __complete bash "$((${#words[@]} - 1))" -- "${words[@]}" 2> /dev/null)
}
complete -o default -F _fdl fdl
