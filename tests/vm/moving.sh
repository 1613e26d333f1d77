# Data moves to one drive more, to other groups, or away from a parity that goes, under fio on a file system that stays mounted.
# Arguments: the shared folder, then scenarios.

. "${BASH_SOURCE[0]%/*}/lib.sh"

BULK=(96m 3 --rw=write --bssplit=1m/100 --fsync_on_close=1)

# An array of four drives with a file system under load, which moves slowly if it is told to.
before_move() {
    daemon_start
    create data 5 -- 0 1 2 3
    strake set data restripe_priority="$1"
    known_on "$(device data)"
    verified "$MNT/bulk" "${BULK[@]}"
    load_start "$MNT/load" 32m
}

# It begins to move to five drives.
begin_move() {
    before_move "$1"
    strake restripe data --add "$(drive 4)"
}

# Bytes that have moved.
moved() { show data '[.jobs[] | select(.kind == "restripe") | .done_bytes][0] // 0'; }
moved_past() { [ "$(moved)" -ge $(($1 << 20)) ]; }
larger_than() { [ "$(blockdev --getsize64 "$(device data)")" -gt "$1" ]; }

# ends_larger BEFORE HAD HAS: all has moved, rows of so many data columns have more, and the file system takes
# the room.
ends_larger() {
    local before=$1 size=$(($1 / $2 * $3)) dev
    dev=$(device data)
    wait_for 300 "the larger device" larger_than "$before"
    same "$(blockdev --getsize64 "$dev")" "$size" "the size of the device"
    same "$(show data .size_bytes)" "$size" "what show tells"
    wait_settled data 120
    user xfs_growfs "$MNT" >/dev/null
}

bulk_is_there() { verified_again "$MNT/bulk" "${BULK[@]}"; }

# killed_while_moving MIB: the daemon is killed in the middle of a move of so much, which then goes on as fast as it can.
killed_while_moving() {
    wait_for 120 "data that has moved" moved_past 8
    daemon_kill
    sleep 1
    daemon_start
    wait_state data optimal 60
    say "$(($(moved) >> 20)) MiB of $1 had moved when the daemon was killed"
    strake set data restripe_priority=100
}

scenario_move() {
    local before at
    begin_move 10
    before=$(blockdev --getsize64 "$(device data)")
    wait_for 120 "data that has moved" moved_past 8
    strake restripe data --stop
    daemon_kill
    daemon_start
    wait_state data optimal 60
    at=$(moved)
    say "stopped after $((at >> 20)) MiB of $((before >> 20))"
    sleep 2
    same "$(moved)" "$at" "what has moved while it is stopped"
    strake restripe data --continue
    wait_for 120 "more that has moved" moved_past $(((at >> 20) + 8))
    daemon_kill
    sleep 1
    daemon_start
    wait_state data optimal 60
    strake set data restripe_priority=100
    ends_larger "$before" 3 4
    load_stop
    # More than there was room for before.
    user fio --name=fill --filename="$MNT/fill" --size=560m --rw=write --bs=1m --verify=crc32c --direct=1 --output="$RUN/fill.txt" ||
        fail "the file system does not take what it has room for"
    bulk_is_there
    host unplug 1
    wait_state data degraded 30
    bulk_is_there
    host plug 1
    drive 1 >/dev/null
    wait_settled data 240
    sound_without 4
}

# RAID 5 of four drives gets a second group of as many, loses a drive of each, and becomes one group of eight.
scenario_groups() {
    local before
    before_move 10
    before=$(blockdev --getsize64 "$(device data)")
    # shellcheck disable=SC2046
    strake restripe data --level 50 --group-size 4 $(drives 4 5 6 7)
    killed_while_moving $((before >> 20))
    ends_larger "$before" 3 6
    same "$(show data .level)" 50 "the level"
    load_stop
    host unplug 1
    host unplug 6
    wait_state data degraded 30
    known_is_there
    bulk_is_there
    host plug 1
    host plug 6
    drives 1 6 >/dev/null
    wait_settled data 240
    before=$(blockdev --getsize64 "$(device data)")
    # Seven data columns where there were six: no drive is needed for that.
    strake restripe data --level 5
    ends_larger "$before" 6 7
    same "$(show data .level)" 5 "the level"
    bulk_is_there
    sound_without 5
}

lowered() { [ "$(show data .level)" = "$1" ] && [ "$(show data '.jobs | length')" = 0 ]; }

# A RAID 6 that was made as one becomes RAID 5 of the same size, and has a spare, which a lost drive then gets.
scenario_lower() {
    local before
    daemon_start
    create data 6 -- 0 1 2 3 4
    strake set data restripe_priority=10 spare_delay=1s
    known_on "$(device data)"
    verified "$MNT/bulk" "${BULK[@]}"
    before=$(blockdev --getsize64 "$(device data)")
    load_start "$MNT/load" 32m
    strake restripe data --level 5
    killed_while_moving $((before >> 20))
    wait_for 300 "RAID 5" lowered 5
    same "$(blockdev --getsize64 "$(device data)")" "$before" "the size of the device"
    same "$(show data '[.members[], .spares[]] | map(.state) | sort | join(" ")')" \
        "in_sync in_sync in_sync in_sync spare" "members and spares"
    load_stop
    bulk_is_there
    host unplug 1
    wait_for 30 "a word of the lost drive" degraded_or_said
    wait_settled data 240
    bulk_is_there
    sound_without 2
}

# The power goes while a window moves.
scenario_move_cut() {
    begin_move 20
    blockdev --getsize64 "$(device data)" >"$SHARE/../before"
    cp "$RUN/known" "$SHARE/../known"
    sync
    wait_for 120 "data that has moved" moved_past 4
    host powercut
    sleep 60
    fail "the power is still there"
}

scenario_after_move() {
    daemon_start
    wait_state data optimal 60
    say "$(($(moved) >> 20)) MiB had moved"
    strake set data restripe_priority=100
    cp "$SHARE/../known" "$RUN/known"
    mount_fs "$(device data)"
    known_is_there
    bulk_is_there
    ends_larger "$(cat "$SHARE/../before")" 3 4
    bulk_is_there
    sound_without 2
}

# What this looks at was left by the boot before.
keeps_drives() { [ "$1" = after-move ]; }

run_all "$@"
