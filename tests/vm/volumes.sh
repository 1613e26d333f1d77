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

keeps_drives() { false; }

run_all "$@"
