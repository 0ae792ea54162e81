# Completion of fdl in fish: fdl completions fish | source
function __fdl_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l found (fdl __complete fish (count $words) -- $words $current 2> /dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path $current
    end
end
complete -c fdl -f -a '(__fdl_complete)'
