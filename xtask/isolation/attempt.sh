# Says what each attempt of a script came to: the check that runs the script counts these lines.
attempt() {
    if sh -c "$1" 2>/dev/null; then echo "attempted: $1"; else echo "refused: $1"; fi
}
