# An array carved into two volumes: a file system on one, verified writes to the other.
# Arguments: the shared folder, then scenarios.

. "${BASH_SOURCE[0]%/*}/lib.sh"

# volume NAME FILTER: one thing that is known of a volume of the array.
volume() { strake volume show data "$1" --json | jq -r "$2"; }

volume_device() {
    local device
    device=$(volume "$1" .device)
    [ -b "$device" ] || fail "the device of volume $1 is '$device', not a block device"
    echo "$device"
}

bytes_of() { blockdev --getsize64 "$1"; }

scenario_volumes() {
    local fs raw
    daemon_start
    create data 5 -- 0 1 2 3 4
    strake volume create data fs --size 400M
    strake volume create data raw --size 300M
    fs=$(volume_device fs)
    raw=$(volume_device raw)
    same "$(readlink /dev/strake/data/fs)" "$fs" "the stable name"
    same "$(bytes_of "$fs")" $((400 << 20)) "the size that the kernel tells"
    same "$(show data .device)" null "the array's own device"
    known_on "$fs"
    verified "$raw" 96m 3
    refused volume delete data fs --yes | grep -q volume-in-use || fail "deleted while mounted"

    load_start "$MNT/load" 64m
    for _ in 1 2; do
        daemon_kill
        sleep 1
        daemon_start
        wait_state data optimal 60
        wait_for 30 "the volumes" volume_device raw
        same "$(volume_device fs)" "$fs" "the device of fs after a kill"
        same "$(volume_device raw)" "$raw" "the device of raw after a kill"
        sleep 3
    done
    strake volume resize data fs --size 800M
    say "$fs has $(bytes_of "$fs") bytes after it grew, on $(uname -r)"
    load_stop
    if show data '.volumes | length' >/dev/null && [ "$(bytes_of "$fs")" = $((800 << 20)) ]; then
        user xfs_growfs "$MNT" >/dev/null
        verified "$MNT/more" 320m 9
    else
        # A kernel that cannot tell: at the next start.
        umount_fs
        strake stop data
        strake start data
        fs=$(volume_device fs)
        raw=$(volume_device raw)
        same "$(bytes_of "$fs")" $((800 << 20)) "the size after the next start"
        mount_fs "$fs"
        user xfs_growfs "$MNT" >/dev/null
    fi
    known_is_there
    verified_again "$raw" 96m 3
    umount_fs
    user xfs_repair -n "$fs"

    host unplug 1
    wait_state data degraded 30
    mount_fs "$fs"
    known_is_there
    verified_again "$raw" 96m 3
    umount_fs
    strake volume delete data raw --yes
    [ ! -e /dev/strake/data/raw ] || fail "the name of a deleted volume stays"
    strake volume create data next --size 300M
    same "$(digest "$(volume_device next)" 300)" "$(head -c 300M /dev/zero | md5sum | cut -d' ' -f1)" "a new volume where an old one was"
    ! dmesg | grep -iE 'I/O error|critical (target|medium) error' || fail "the kernel saw an I/O error"
}

# held_start BLOCK-DEVICE: a program that has the device's other side, /dev/ublkcN, open. The kernel lets one process have it, so
# no daemon can serve the device meanwhile.
held_start() {
    local side=${1/ublkb/ublkc}
    rm -f "$RUN/held"
    bash -c 'exec 8<>"$1" && touch "$2" && exec sleep infinity' - "$side" "$RUN/held" </dev/null >/dev/null 2>&1 &
    echo $! >"$RUN/holder.pid"
    wait_for 10 "a program that has $side open" test -e "$RUN/held"
}

held_stop() {
    kill -KILL "$(cat "$RUN/holder.pid")"
    rm -f "$RUN/holder.pid"
}

lay_anew_more() { [ ! -e "$RUN/holder.pid" ] || held_stop; }

serves_on() { [ "$(volume "$1" .device)" = "$2" ]; }
noted() { strake events --json | grep -q "\"event\":\"$1\""; }
no_ublk() { ! compgen -G '/dev/ublk[bc]*' >/dev/null; }

# unserved NAME: it is not served, and `show` says why.
unserved() { [ "$(volume "$1" .device)" = null ] && [ -n "$(volume "$1" '.not_served // ""')" ]; }

# holds_member PID: the process has a drive of the array open.
holds_member() { find "/proc/$1/fd" -lname "$(drive 0)" | grep -q .; }

two_volumes() {
    daemon_start
    create data 5 -- 0 1 2
    strake volume create data fs --size 400M
    strake volume create data raw --size 100M
}

# Devices of a killed daemon cannot be taken over at first: their users wait, and are served without a hand.
scenario_left_behind() {
    local fs raw odd side
    two_volumes
    strake volume create data odd --size 50M
    fs=$(volume_device fs)
    raw=$(volume_device raw)
    odd=$(volume_device odd)
    side=${odd/ublkb/ublkc}
    known_on "$fs"
    daemon_kill
    held_start "$fs"
    mv "$side" /dev/away
    daemon_start
    wait_for 90 "the other volume" serves_on raw "$raw"
    wait_for 60 "a word of the volume that is not served" unserved fs
    wait_for 60 "a word of the other volume that is not served" unserved odd
    say "not served: $(volume fs .not_served)"
    say "not served: $(volume odd .not_served)"
    mv /dev/away "$side"
    wait_for 90 "the volume whose device was out of reach" serves_on odd "$odd"
    strake show data | grep "fs is not served"
    noted volume_not_served || fail "no event says that the volume is not served"

    # A stop does not forget the device, and neither does a start that cannot have it.
    refused volume delete data fs --yes | grep -q volume-in-use || fail "deleted under its users"
    strake stop data
    [ -b "$fs" ] || fail "the stop took a device that is in use"
    refused start data --export nbd | tee "$RUN/refused.text"
    grep -q "volume fs .*$fs is mounted" "$RUN/refused.text" || fail "it is not said what uses it"
    grep -q -- "--export ublk" "$RUN/refused.text" || fail "no cure that works"
    refused destroy data --yes | grep -q -- "--export ublk" || fail "destroyed under its users"
    strake start data
    unserved fs || fail "it is served while another program has it"

    held_stop
    wait_for 90 "the volume that was left behind" serves_on fs "$fs"
    noted volume_served || fail "no event says that the volume is served"
    known_is_there
    umount_fs
    user xfs_repair -n "$fs"
    strake stop data
    no_ublk || fail "the stop left a device"
}

# The same for the device of an array without volumes: its start is tried again.
scenario_left_array() {
    local dev
    daemon_start
    create data 5 -- 0 1 2
    dev=$(device data)
    known_on "$dev"
    daemon_kill
    # As if it had been killed between the start of the device and the note of its number.
    rm "$STRAKE_DIR"/arrays/*.json
    held_start "$dev"
    daemon_start
    wait_for 90 "a refused start" noted start_refused
    held_stop
    wait_for 90 "the device that was left behind" device data
    same "$(device data)" "$dev" "the device after a kill"
    known_is_there

    daemon_kill
    refused start data --foreground --export nbd | tee "$RUN/refused.text"
    grep -q "array data: $dev is mounted" "$RUN/refused.text" || fail "it is not said what uses it"
    refused destroy data --yes | grep -q -- "--export ublk" || fail "no cure that works"
    refused drive clean "$(drive 0)" --yes | grep -q -- "--export ublk" || fail "no cure that works"
    refused create new --level 1 --force --yes "$(drive 0)" "$(drive 3)" |
        grep -q -- "--export ublk" || fail "a new array takes a member away from under users"
    daemon_start
    wait_for 60 "the device after another kill" device data
    umount_fs
    daemon_kill
    "$RUN/strake" start data --foreground --export none &
    wait_for 30 "the end of the device" no_ublk
    wait_for 30 "the array that has no device" holds_member "$!"
    kill -TERM "$!"
    wait "$!" || fail "the array without a device does not stop cleanly"
}

# What a killed daemon left and nothing uses goes with what was to have it.
scenario_left_unused() {
    local fs n
    two_volumes
    daemon_kill
    ! no_ublk || fail "the kill left no device"
    strake destroy data --yes
    no_ublk || fail "destroy left $(echo /dev/ublk*)"

    daemon_start
    create data 5 -- 0 1 2
    daemon_kill
    for n in 0 1 2; do host unplug "$n"; done
    strake forget data
    no_ublk || fail "forget left $(echo /dev/ublk*)"
    for n in 0 1 2; do host plug "$n"; done

    daemon_start
    wait_state data optimal 60
    strake volume create data fs --size 400M --force --yes
    fs=$(volume_device fs)
    daemon_kill
    held_start "$fs"
    daemon_start
    wait_for 90 "a word of the volume that is not served" unserved fs
    strake stop data
    held_stop
    strake start data --export nbd
    no_ublk || fail "a start without ublk left $(echo /dev/ublk*)"
    volume fs .device | grep -q '^nbd+unix' || fail "it is not served over NBD"
}

keeps_drives() { false; }

run_all "$@"
