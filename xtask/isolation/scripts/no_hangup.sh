# [later] Starts processes under nohup and setsid, which write three seconds later.
nohup sh -c 'sleep 3; echo late >> small.txt; echo late >> ../sibling/a.txt' >/dev/null 2>&1 &
setsid sh -c 'sleep 3; echo late > late.txt; echo late >> out/c.txt' >/dev/null 2>&1 &
(setsid nohup sh -c 'sleep 3; echo late >> "$HOME/notes.txt"' >/dev/null 2>&1 &)
echo "attempted: detached shells"
