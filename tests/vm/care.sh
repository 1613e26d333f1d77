# What administrators and drives do to an array in its years, each under fio with a file system on it.
# Arguments: the shared folder, then scenarios.

. "${BASH_SOURCE[0]%/*}/lib.sh"

# MiB written to drive N since the kernel knows it.
written_mib() {
    local name stat
    name=$(drive "$1")
    read -r -a stat <"/sys/block/${name##*/}/stat"
    echo $((stat[6] / 2048))
}

# Two arrays may take from one pool; the one that loses a drive gets its only device.
scenario_pool() {
    local other
    daemon_start
    create data 5 -- 0 1 2
    create other 1 -- 3 4
    strake pool create shelf --yes "$(drive 5)"
    for other in data other; do strake set "$other" pool=shelf spare_delay=2s; done
    known_on "$(device data)"
    load_start "$MNT/load" 32m
    host unplug 1
    wait_for 60 "the device of the pool in the array" taken
    wait_settled data 240
    load_stop
    same "$(strake pool show shelf --json | jq -c '[.. | .devices? // empty | length] | add')" 0 "devices left in the pool"
    same "$(show other .state)" optimal "the other array"
    sound_without 0
}

taken() { [[ " $(show data '[.members[].device] | join(" ")') " == *" $(drive 5) "* ]]; }

# A drive that is away for less than the delay comes back by what was written meanwhile; the spare stays one.
scenario_drop_and_return() {
    local copied
    daemon_start
    create data 5 --spare "$(drive 5)" -- 0 1 2 3 4
    strake set data spare_delay=120s
    known_on "$(device data)"
    verified "$MNT/bulk" 256m 3 --rw=write --bssplit=1m/100 --fsync_on_close=1
    # What is still Dirty counts as missed: a drive takes the content of its cache with it.
    wait_for 60 "regions that are Clean" quiet 8
    host unplug 2
    wait_state data degraded 30
    verified "$MNT/meanwhile" 16m 4 --fsync_on_close=1
    host plug 2
    drive 2 >/dev/null
    wait_settled data 240
    # The kernel counts from when it was plugged.
    copied=$(written_mib 2)
    same "$(show data '.spares | length')" 1 "spares left"
    strake events | grep -q partial_rebuild || fail "no word of a partial rebuild"
    say "written to the drive that came back: $copied MiB"
    # Its quarter of 320 MiB of files would be 80; of what was written meanwhile it is 4, by whole regions,
    # and as much as was Dirty.
    [ "$copied" -ge 1 ] && [ "$copied" -le 32 ] || fail "$copied MiB were copied for 16 MiB written"
    sound_without 0
}

# quiet MIB: no more than that of a drive is in regions that are Dirty.
quiet() {
    strake examine "$(drive 2)" --json |
        jq -e --argjson mib "$1" '.data_bytes as $all | .regions | .dirty * $all / (.unwritten + .clean + .dirty + .need_sync) <= $mib * 1048576'
}

# A drive that does not answer goes out, keeps the other array from nothing, and is taken back by itself.
scenario_hung_drive() {
    local under sectors
    modprobe dm_mod
    under=$(drive 2)
    sectors=$(blockdev --getsz "$under")
    # Not all of it: what lies on the drive is not to be a second copy of the member.
    dmsetup --noudevsync create hangs --table "0 $((sectors - 8192)) linear $under 2048"
    daemon_start --io-timeout 5
    create other 1 -- 3 4
    strake create data --level 5 --export ublk --yes "$(drive 0)" "$(drive 1)" /dev/mapper/hangs
    wait_for 60 "the device of data" device data
    strake set data spare_delay=1h
    known_on "$(device data)"
    dmsetup --noudevsync suspend --noflush --nolockfs hangs
    verified "$MNT/meanwhile" 4m 4 --fsync_on_close=1
    wait_state data degraded 60
    strake events | grep -q timed_out || fail "no word of a timeout"
    # Its superblock cannot be read: what happens to others is seen all the same, and done.
    host unplug 3
    wait_for 30 "a word of the lost drive" state_is other degraded
    host plug 3
    drive 3 >/dev/null
    wait_settled other 60
    timeout 60 "$RUN/strake" stop other || fail "other is not stopped"
    timeout 60 "$RUN/strake" start other || fail "other is not started"
    same "$(show data '.members[2].state')" missing "the drive that hangs"
    # Nothing but the look for late members tells that it answers.
    dmsetup --noudevsync resume hangs
    wait_settled data 60
    strake events | grep -q partial_rebuild || fail "no word of a partial rebuild"
    known_is_there
    verified_again "$MNT/meanwhile" 4m 4
    umount_fs
    strake stop data
    dmsetup --noudevsync remove --retry hangs
}

# What lies under a member shows its superblock as well: at the same place under dm-linear and loop, and at the head
# under md, which keeps its own superblock at the end.
scenario_layers() {
    local flat=/dev/mapper/flat md=/dev/md78 loop n
    dmsetup --noudevsync create flat --table "0 $(blockdev --getsz "$(drive 0)") linear $(drive 0) 0"
    mdadm --create "$md" --run --assume-clean --level=5 --raid-devices=3 --metadata=1.0 --bitmap=none \
        "$(drive 1)" "$(drive 2)" "$(drive 3)" >&2
    loop=$(losetup --find --show "$(drive 4)")
    back_and_gone "$flat" "$md" "$loop"
    losetup --detach "$loop"
    mdadm --stop "$md" >&2
    for n in 1 2 3; do mdadm --zero-superblock "$(drive "$n")"; done
    dmsetup --noudevsync remove --retry flat
}

# Bits are flipped behind the array's back; a scrub names the drive and makes it true again.
scenario_rot() {
    local json at mib=12
    daemon_start
    create data 6 -- 0 1 2 3 4
    known_on "$(device data)"
    umount_fs
    json=$(strake examine "$(drive 3)" --json)
    at=$(($(jq .data_offset_bytes <<<"$json") / 1048576 + 2))
    dd if=/dev/urandom of="$(drive 3)" bs=1M seek="$at" count="$mib" oflag=direct conv=notrunc status=none
    strake scrub data start --repair --wait
    say "the scrub: $(strake scrub data status --json | jq -c '.. | .inconsistent_stripes? // empty' | head -n 1) stripes inconsistent"
    [ "$(show data '.members[3].mismatches')" -gt 0 ] || fail "nothing was counted against the drive that lied"
    same "$(show data '[.members[0,1,2,4].mismatches] | add')" 0 "mismatches of the others"
    strake scrub data start --wait
    same "$(strake scrub data status --json | jq '[.. | .inconsistent_stripes? // empty][0]')" 0 "inconsistent stripes after the repair"
    mount_fs "$(device data)"
    sound_without 0
}

# What the file system trims is Unwritten again, and a rebuild copies only what is left.
scenario_trim() {
    local full trimmed copied
    daemon_start
    create data 5 --spare "$(drive 5)" -- 0 1 2 3 4
    strake set data spare_delay=2s
    known_on "$(device data)"
    verified "$MNT/bulk" 768m 3 --rw=write --bssplit=1m/100 --do_verify=0 --fsync_on_close=1
    full=$(show data .unwritten_bytes)
    user rm "$MNT/bulk"
    user sync -f "$MNT"
    user fstrim -v "$MNT"
    # A region counts when its members were told, which goes on when the discard was answered.
    given_back() { [ $(($(show data .unwritten_bytes) - full)) -ge $((512 << 20)) ]; }
    wait_for 60 "what was trimmed to be Unwritten" given_back
    trimmed=$(show data .unwritten_bytes)
    say "unwritten: $((full >> 20)) MiB before fstrim, $((trimmed >> 20)) MiB after"
    copied=$(written_mib 5)
    host unplug 2
    wait_for 30 "a word of the lost drive" degraded_or_said
    wait_settled data 240
    copied=$(($(written_mib 5) - copied))
    say "written to the spare: $copied MiB"
    # A quarter of what is left, where it was a quarter of 800 MiB.
    [ "$copied" -le 100 ] || fail "$copied MiB were rebuilt"
    sound_without 0
}

all_zeroed() { [ "$(show data .unwritten_bytes)" = 0 ] && [ "$(show data '.jobs | length')" = 0 ]; }
zeroed_past() { [ "$(show data '[.jobs[] | select(.kind == "init") | .done_bytes][0] // 0')" -ge $(($1 << 20)) ]; }

# What was never written is zeroed under fio, slowly, then at once, with a SIGKILL in between; a drive is lost in the
# middle of it and comes back.
scenario_zeroing() {
    local left
    daemon_start
    create data 5 -- 0 1 2 3
    strake set data init_priority=1
    known_on "$(device data)"
    load_start "$MNT/load" 32m
    strake init data start
    wait_for 120 "some that is zeroed" zeroed_past 60
    daemon_kill
    sleep 1
    daemon_start
    wait_state data optimal 60
    left=$(show data .unwritten_bytes)
    say "$((left >> 20)) MiB were unwritten when the daemon was killed"
    [ "$left" -gt 0 ] || fail "all was zeroed already"
    host unplug 1
    wait_state data degraded 30
    strake set data init_priority=100
    sleep 2
    host plug 1
    drive 1 >/dev/null
    wait_settled data 240
    wait_for 240 "all of it to be zeroed" all_zeroed
    load_stop
    strake scrub data start --wait
    same "$(strake scrub data status --json | jq '[.. | .inconsistent_stripes? // empty][0]')" 0 "inconsistent stripes"
    sound_without 2
}

# A drive that cannot read some of its sectors is replaced while it serves; what it cannot read is computed.
scenario_read_errors() {
    local bad=/sys/kernel/config/nullb/sick from errors
    daemon_start
    modprobe null_blk nr_devices=0
    mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
    mkdir "$bad"
    for from in size=512 memory_backed=1 discard=1 power=1; do echo "${from#*=}" >"$bad/${from%=*}"; done
    wait_for 10 "the sick drive" test -b /dev/sick
    # shellcheck disable=SC2046
    strake create data --level 5 --export ublk --yes $(drives 0 1 2) /dev/sick
    wait_for 60 "the device of data" device data
    known_on "$(device data)"
    from=$(strake examine /dev/sick --json | jq '.data_offset_bytes / 512')
    # 64 KiB of each MiB that the known file lies in. Nothing is written there: to a block that this drive calls bad
    # writes fail, too, and it would be out before it has shown a single read error.
    for n in $(seq 1 15); do
        echo "+$((from + n * 2048))-$((from + n * 2048 + 127))" >"$bad/badblocks"
    done
    load_start "$MNT/load" 32m
    strake replace data 3 "$(drive 5)"
    wait_for 240 "the replacement" replaced
    wait_settled data 60
    load_stop
    errors=$(strake events | grep -c read_error || true)
    say "read errors of the drive that was replaced: $errors"
    [ "$errors" -gt 0 ] || fail "the sick drive read all that was asked of it"
    sound_without 0
}

replaced() { [ "$(show data '[.members[].device] | join(" ")')" = "$(drives 0 1 2 5 | paste -sd' ')" ]; }

run_all "$@"
