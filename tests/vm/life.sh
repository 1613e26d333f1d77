# The life of a RAID 5 of five drives and a spare, over several boots.
# Arguments: the shared folder, then scenarios.

. "${BASH_SOURCE[0]%/*}/lib.sh"

# The stripe as the array tells it, against what the kernel hands to mkfs.
stripe() {
    STRIP=$(show data .strip_bytes)
    WIDTH=$((STRIP * 4))
    local queue=/sys/block/${1##*/}/queue
    same "$(cat "$queue/minimum_io_size")" "$STRIP" "minimum_io_size"
    same "$(cat "$queue/optimal_io_size")" "$WIDTH" "optimal_io_size"
}

scenario_filesystems() {
    local dev line sum
    daemon_start
    create data 5 -- 0 1 2 3 4
    dev=$(device data)
    stripe "$dev"

    user mkfs.xfs -f "$dev"
    mount_fs "$dev"
    line=$(user xfs_info "$MNT" | grep -o 'sunit=.*swidth=[0-9]*' | head -n 1)
    say "xfs: $line, blocks of 4096, strip $STRIP"
    same "$line" "$(xfs_line)" "xfs_info"
    verified "$MNT/a" 96m 1
    sum=$(digest "$MNT/a" 96)
    umount_fs
    mount_fs "$dev"
    verified_again "$MNT/a" 96m 1
    same "$(digest "$MNT/a" 96)" "$sum" "digest after remount"
    umount_fs
    user xfs_repair -n "$dev"

    user mkfs.ext4 -q -F "$dev"
    line=$(user dumpe2fs -h "$dev" 2>/dev/null)
    say "ext4: $(grep -E 'RAID' <<<"$line" | tr -s ' \n' ' ')"
    same "$(sed -n 's/^RAID stride: *//p' <<<"$line")" $((STRIP / 4096)) "ext4 stride"
    same "$(sed -n 's/^RAID stripe width: *//p' <<<"$line")" $((WIDTH / 4096)) "ext4 width"
    mount_fs "$dev"
    verified "$MNT/a" 96m 2
    sum=$(digest "$MNT/a" 96)
    umount_fs
    mount_fs "$dev"
    verified_again "$MNT/a" 96m 2
    same "$(digest "$MNT/a" 96)" "$sum" "digest after remount"
    umount_fs
    user e2fsck -fn "$dev"
}

# xfs_info counts in blocks; its spacing is its own.
xfs_line() { printf 'sunit=%-6d swidth=%d' $((STRIP / 4096)) $((WIDTH / 4096)); }

# Members on a thin volume and on a multipath device with one path.
scenario_thin_multipath() {
    local n table
    for n in dm_thin_pool dm_multipath dm_round_robin; do modprobe "$n"; done
    n=$(blockdev --getsz "$(drive 4)")
    dmsetup create pool --table "0 $n thin-pool $(drive 3) $(drive 4) 128 0"
    dmsetup message pool 0 "create_thin 0"
    dmsetup create thin --table "0 $n thin /dev/mapper/pool 0"
    table="multipath 0 0 1 1 round-robin 0 1 1 $(drive 0) 1000"
    dmsetup create paths --table "0 $(blockdev --getsz "$(drive 0)") $table"
    back_and_gone /dev/mapper/thin /dev/mapper/paths "$(drive 1)"
    for n in thin pool paths; do dmsetup remove --retry "$n"; done
}

# Swap lies on the array, the daemon's log and what is written lie in memory that can be swapped, and next to nothing is
# free; a drive is pulled meanwhile. What comes back from swap is what was written.
scenario_swap() {
    local dev writer
    daemon_start
    create data 5 -- 0 1 2
    dev=$(device data)
    mkswap "$dev"
    swapon "$dev"
    user mount -t tmpfs -o size=400m swapped "$MNT"
    leave_free 200
    BSSPLIT=64k/100 verified "$MNT/swapped" 320m 3 --direct=0 --ioengine=psync &
    writer=$!
    wait_for 240 "the first pages in swap" swapped_mib 32
    host unplug 2
    wait_for 60 "a word of the lost drive" degraded_or_said
    wait $writer || fail "what was swapped is not what was written"
    say "free at the end: $(memory MemFree) MiB; in swap: $(($(memory SwapTotal) - $(memory SwapFree))) MiB"
    same "$(show data .state)" degraded "the state"
    leave_free 3000
    swapoff "$dev"
    user umount "$MNT"
    strake stop data
}

memory() { awk -v name="$1:" '$1 == name { print int($2 / 1024) }' /proc/meminfo; }

swapped_mib() { [ $(($(memory SwapTotal) - $(memory SwapFree))) -ge "$1" ]; }

# leave_free MIB: huge pages take all else.
leave_free() {
    local huge
    echo 3 >/proc/sys/vm/drop_caches
    huge=$(cat /proc/sys/vm/nr_hugepages)
    huge=$((huge + ($(memory MemAvailable) - $1) / 2))
    echo $((huge > 0 ? huge : 0)) >/proc/sys/vm/nr_hugepages
    say "available: $(memory MemAvailable) MiB"
}

lay_anew_more() {
    echo 0 >/proc/sys/vm/nr_hugepages
    swapoff -a
}

# udev with the rules of the package; the guest has no package.
udev_start() {
    mkdir -p /run/udev/rules.d
    sed "s#/usr/bin/strake#$RUN/strake#" "${BASH_SOURCE[0]%/*}/62-strake.rules" >/run/udev/rules.d/62-strake.rules
    pgrep -x systemd-udevd >/dev/null || pgrep -x udevd >/dev/null || /lib/systemd/systemd-udevd --daemon
    udevadm control --reload
}

# link PATH TARGET: udev's links are relative, the daemon's is not.
link() { [ "$(readlink "$1")" = "$2" ]; }
wait_link() { wait_for 60 "the link $1 to $2" link "$1" "$2"; }
no_link() { [ ! -L "$1" ]; }

knows() { udevadm info --query=property "$1" | grep -qx "$2"; }

scenario_udev() {
    local name uuid volume
    udev_start
    daemon_start
    create data 1 -- 0 1
    name=$(device data)
    name=${name##*/}
    wait_link /dev/strake/data "../$name"
    wait_link /dev/disk/by-id/strake-name-data "../../$name"
    wait_link "/dev/disk/by-id/strake-uuid-$(show data .uuid)" "../../$name"
    wait_for 60 "the mark of a member" knows "$(drive 1)" ID_FS_TYPE=strake_member
    knows "$(drive 1)" ID_FS_LABEL=data || fail "the member has no label"
    # The daemon keeps it open: no close tells udev that it is a member now.
    strake add data "$(drive 4)"
    wait_for 60 "the mark of a spare" knows "$(drive 4)" ID_FS_TYPE=strake_member

    user mkfs.ext4 -q -L files "/dev/$name"
    wait_link /dev/disk/by-label/files "../../$name"
    uuid=$(blkid -p -s UUID -o value "/dev/$name")
    wait_link "/dev/disk/by-uuid/$uuid" "../../$name"
    mount_fs "/dev/disk/by-uuid/$uuid"
    daemon_kill
    daemon_start
    wait_state data optimal 60
    link "/dev/disk/by-uuid/$uuid" "../../$name" || fail "a kill of the daemon costs the link"
    umount_fs

    strake rename data other
    wait_link /dev/strake/other "../$name"
    wait_for 60 "the end of the old name" no_link /dev/strake/data
    wait_for 60 "the end of the old link" no_link /dev/disk/by-id/strake-name-data
    strake stop other
    for gone in /dev/strake/other "/dev/disk/by-uuid/$uuid" /dev/disk/by-id/strake-name-other; do
        wait_for 60 "the end of $gone" no_link "$gone"
    done

    create carved 1 -- 2 3
    strake volume create carved home --size 100M
    volume=$(strake volume show carved home --json | jq -r .device)
    wait_link /dev/strake/carved/home "../../${volume##*/}"
    wait_link /dev/disk/by-id/strake-name-carved:home "../../${volume##*/}"
    late_udev
}

# udev handles each event of a device after its number has gone to the next one.
late_udev() {
    strake stop carved
    udevadm settle
    udevadm control --stop-exec-queue
    strake start other
    name=$(device other)
    strake stop other
    strake start other
    same "$(device other)" "$name" "the device after a start"
    udevadm control --start-exec-queue
    wait_link /dev/strake/other "../${name##*/}"
    wait_link /dev/disk/by-id/strake-name-other "../../${name##*/}"

    udevadm settle
    udevadm control --stop-exec-queue
    strake volume create other home --size 100M --force --yes
    volume=$(strake volume show other home --json | jq -r .device)
    same "$volume" "$name" "the device of the volume"
    udevadm control --start-exec-queue
    wait_link /dev/strake/other/home "../../${volume##*/}"
    wait_link /dev/disk/by-id/strake-name-other:home "../../${volume##*/}"
}

# An array with xfs on it and a file whose digest is known.
with_file() {
    daemon_start
    create data 5 "$@" -- 0 1 2 3 4
    known_on "$(device data)"
}

scenario_hot_unplug() {
    with_file --spare "$(drive 5)"
    # The newest way of this series of kernels, found without being told.
    with_mode user-copy
    strake set data spare_delay=2s
    load_start "$MNT/load" 64m
    host unplug 2
    wait_for 30 "a word of the lost drive" degraded_or_said
    wait_settled data 240
    say "rebuilt onto the spare: $(show data '[.members[].device] | join(" ")')"
    same "$(show data '.spares | length')" 0 "spares left"
    sleep 3
    load_stop
    # What was rebuilt must carry its part: without another drive everything is read through it.
    sound_without 0
}

scenario_daemon_kill() {
    local dev
    with_file --requests 48
    with_mode user-copy
    dev=$(device data)
    same "$(show data '.export.queues * .export.depth')" 48 "requests that the queues hold"
    load_start "$MNT/load" 64m
    for _ in 1 2 3; do
        daemon_kill
        sleep 2
        daemon_start
        wait_state data optimal 60
        same "$(device data)" "$dev" "the device after a kill"
        sleep 4
    done
    load_stop
    known_is_there
    umount_fs
    user xfs_repair -n "$dev"
    ! dmesg | grep -iE 'I/O error|critical (target|medium) error' || fail "the kernel saw an I/O error"
}

# The modes of kernels from 6.16 on, in which members fill the pages of larger healthy reads by themselves; from 7.0 on
# requests come in batches.
with_mode() {
    same "$(show data .export.mode)" "$1" "the mode that show tells"
}

# The other way of moving data through ublk, for kernels without user copy.
scenario_copy_mode() {
    local dev
    export STRAKE_UBLK_MODE=copy
    with_file
    with_mode copy
    dev=$(device data)
    load_start "$MNT/load" 32m
    daemon_kill
    sleep 1
    daemon_start
    wait_state data optimal 60
    same "$(device data)" "$dev" "the device after a kill"
    sleep 4
    load_stop
    known_is_there
    umount_fs
    user xfs_repair -n "$dev"
}

reads_in_place() {
    local count
    count=$(metric data strake_member_reads_in_place_total)
    say "reads in place: $count of $(metric data strake_member_reads_total)"
    [ "$count" -gt "$1" ] || fail "only $count reads in place"
}

# Under fio: the daemon is killed, then a drive is pulled and its spare rebuilt; then another goes.
scenario_reads_in_place() {
    local dev
    with_file --spare "$(drive 5)"
    with_mode batch-auto-buffer
    strake set data spare_delay=2s
    dev=$(device data)
    load_start "$MNT/load" 32m
    daemon_kill
    sleep 1
    daemon_start
    wait_state data optimal 60
    same "$(device data)" "$dev" "the device after a kill"
    with_mode batch-auto-buffer
    host unplug 2
    wait_for 30 "a word of the lost drive" degraded_or_said
    wait_settled data 240
    load_stop
    known_is_there
    reads_in_place 100
    sound_without 0
}

# RAID 5 becomes RAID 6 under fio, the daemon is killed while the parity is built; then two drives go. With a command for
# each request, as between 6.16 and 7.0.
scenario_restripe() {
    local dev
    export STRAKE_UBLK_MODE=auto-buffer
    with_file
    with_mode auto-buffer
    dev=$(device data)
    load_start "$MNT/load" 32m
    strake restripe data --level 6 "$(drive 5)"
    sleep 1
    daemon_kill
    sleep 1
    daemon_start
    wait_for 60 "the device after a kill" device data
    same "$(device data)" "$dev" "the device after a kill"
    same "$(show data .level)" 6 "the level"
    wait_settled data 240
    load_stop
    sound_without 0 3
}

# Partition 1 of drive N, of so many MiB; the kernel alone knows of it.
partition() {
    local whole
    whole=$(drive "$1")
    [ -b "${whole}p1" ] || addpart "$whole" 1 2048 $(($2 * 2048))
    resizepart "$whole" 1 $(($2 * 2048))
    echo "${whole}p1"
}

# Members grow, the array after them, and then the file system on it, which stays mounted under fio.
scenario_grow() {
    local dev n parts=() before
    for n in 0 1 2 3 4; do parts+=("$(partition "$n" 200)"); done
    # Commands in batches, and data through user copy: where requests' pages find no place.
    export STRAKE_UBLK_MODE=batch-user-copy
    daemon_start
    strake create data --level 5 --yes --force "${parts[@]}"
    with_mode batch-user-copy
    dev=$(device data)
    known_on "$dev"
    before=$(blockdev --getsize64 "$dev")
    load_start "$MNT/load" 32m
    for n in 0 1 2 3 4; do partition "$n" 400 >/dev/null; done
    strake grow data
    say "was $before, is $(blockdev --getsize64 "$dev") bytes"
    [ "$(blockdev --getsize64 "$dev")" -ge $((before + 4 * 199 * 1048576)) ] || fail "the device did not grow"
    same "$(show data .size_bytes)" "$(blockdev --getsize64 "$dev")" "what show tells"
    user xfs_growfs "$MNT"
    daemon_kill
    sleep 1
    daemon_start
    wait_state data optimal 60
    same "$(device data)" "$dev" "the device after a kill"
    sleep 3
    load_stop
    # More than there was room for before.
    user fio --name=fill --filename="$MNT/fill" --size=900m --rw=write --bs=1m --verify=crc32c --direct=1 --output="$RUN/fill.txt" ||
        fail "the file system does not take what it has room for"
    known_is_there
    umount_fs
    user xfs_repair -n "$dev"
    strake stop data
    strake destroy data --yes
    # Whoever looks for signatures, udev or the daemon, may have one open for a moment.
    for n in 0 1 2 3 4; do wait_for 30 "the end of a partition of drive $n" delpart "$(drive "$n")" 1; done
}

# A program that has a device open without more, as virtual machines do, and reads when it is told to.
holds() {
    exec 9<"$1"
    touch "$RUN/held"
    until [ -e "$RUN/read" ]; do sleep 0.2; done
    dd bs=4096 count=1 iflag=direct status=none of=/dev/null <&9
}

scenario_clean_stop() {
    local dev holder
    with_file
    umount_fs
    dev=$(device data)
    holds "$dev" &
    holder=$!
    wait_for 10 "a program that has the device open" test -e "$RUN/held"
    refused stop data | grep -q array-in-use || fail "stopped while a program has it open"
    daemon_stop
    daemon_start
    wait_settled data 60
    same "$(device data)" "$dev" "the device under a program that has it open"
    touch "$RUN/read"
    wait "$holder" || fail "a program that had the device open cannot read it any more"
    cp "$RUN/known" "$SHARE/../known"
    strake stop --all
    daemon_stop
}

scenario_fresh_boot() {
    daemon_start
    wait_settled data 60
    cp "$SHARE/../known" "$RUN/known"
    mount_fs "$(device data)"
    known_is_there
    verified_again "$MNT/known" 48m 7
    umount_fs
    # Nothing was unclean, so nothing needs to be made good.
    same "$(strake events | grep -ciE 'resync|unclean' || true)" 0 "words of a resync after a clean stop"
}

# The state folder lies on a drive that keeps it, as on a real machine.
scenario_power_cut() {
    mkfs.ext4 -q -F "$(drive 5)"
    mount "$(drive 5)" "$STRAKE_DIR"
    with_file
    cp "$RUN/known" "$SHARE/../known"
    sync
    load_start "$MNT/load" 64m
    strake set data rebuild_priority=42
    sleep 1
    host powercut
    sleep 60
    fail "the power is still there"
}

scenario_after_cut() {
    mount "$(drive 5)" "$STRAKE_DIR"
    strake events --json 2>/dev/null | tail -n 1 | grep -q 'rebuild_priority=42' || fail "the last event before the cut is not there"
    daemon_start
    wait_settled data 120
    cp "$SHARE/../known" "$RUN/known"
    mount_fs "$(device data)"
    sound_without 1
}

# What these look at was left by the boot before.
keeps_drives() {
    case $1 in
    fresh-boot | after-cut) true ;;
    *) false ;;
    esac
}

run_all "$@"
