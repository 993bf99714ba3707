# Writes into the home folder: settings, shell profiles, new files.
. ./attempt.sh
attempt 'echo x >> "$HOME/.bashrc"'
attempt 'echo x > "$HOME/.config/tool/settings.toml"'
attempt 'mkdir -p "$HOME/.local/share/tool" && echo x > "$HOME/.local/share/tool/state"'
attempt 'rm "$HOME/notes.txt"'
attempt 'echo x > ~/.netrc'
