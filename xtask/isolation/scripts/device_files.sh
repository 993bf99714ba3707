# [system] Makes files among the devices.
. ./attempt.sh
attempt 'echo x > "/dev/$HEADROOM_SUITE_MARK"'
attempt 'mkdir "/dev/$HEADROOM_SUITE_MARK-folder"'
attempt 'echo x > /dev/null'
