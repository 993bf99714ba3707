# Leaves files that something else would run later: units, autostart, hooks of git.
. ./attempt.sh
attempt 'mkdir -p ~/.config/systemd/user && echo "[Timer]" > ~/.config/systemd/user/suite.timer'
attempt 'mkdir -p ~/.config/autostart && echo "[Desktop Entry]" > ~/.config/autostart/suite.desktop'
attempt 'echo "* * * * * true" > ~/.crontab'
attempt 'mkdir -p .git/hooks && echo "#!/bin/sh" > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit'
