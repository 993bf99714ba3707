# Appends with >> of a shell to a small file, a large one, one in a crowded folder and one behind a link.
. ./attempt.sh
attempt 'echo more >> small.txt'
attempt 'echo more >> large.bin'
attempt 'echo more >> data/item-0002.txt'
attempt 'echo more >> out/c.txt'
attempt 'echo more >> .git/config'
