# Repacks, prunes and cleans the user's git repository.
. ./attempt.sh
attempt 'git gc -q --prune=now'
attempt 'git reset -q --hard HEAD~0 && git clean -qfdx'
attempt 'git reflog expire --expire=now --all'
attempt 'rm -rf .git/logs'
