# Commits to the user's git repository, branches, tags and changes its settings.
. ./attempt.sh
attempt 'echo changed >> small.txt && git -c user.name=a -c user.email=a@b commit -qam second'
attempt 'git checkout -q -b other'
attempt 'git tag first'
attempt 'git config user.name somebody'
attempt 'git stash list && git update-ref refs/heads/side HEAD'
