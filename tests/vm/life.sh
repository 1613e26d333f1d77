# The life of a RAID 5 of five drives and a spare, over three boots.
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
    wear_told
}

# What the drives themselves report of wear: each its serial number, and what was written to it.
wear_told() {
    local wear
    wear=$(strake show data --wear --json) || return 1
    say "drive 0: $(jq -c '.members[0] | [.model, .temperature_c, .percentage_used, .host_written_bytes]' <<<"$wear")"
    same "$(jq -r '[.members[].serial] | join(" ")' <<<"$wear")" "SN0 SN1 SN2 SN3 SN4" "serial numbers told by the drives"
    # 192 MiB of files on four strips of five: every drive has at least a quarter of that.
    same "$(jq '[.members[] | .host_written_bytes > 48 * 1048576] | all' <<<"$wear")" true "every drive counts what was written"
    same "$(jq '[.members[] | .media_written_bytes == null] | all' <<<"$wear")" true "media bytes of drives that do not tell them"
}

# xfs_info counts in blocks; its spacing is its own.
xfs_line() { printf 'sunit=%-6d swidth=%d' $((STRIP / 4096)) $((WIDTH / 4096)); }

# An array with xfs on it and a file whose digest is known.
with_file() {
    local dev
    daemon_start
    create data 5 "$@" -- 0 1 2 3 4
    dev=$(device data)
    user mkfs.xfs -q -f "$dev"
    mount_fs "$dev"
    verified "$MNT/known" 48m 7 --fsync_on_close=1
    digest "$MNT/known" 48 >"$RUN/known"
}

known_is_there() { same "$(digest "$MNT/known" 48)" "$(cat "$RUN/known")" "digest of the known file"; }

scenario_hot_unplug() {
    local dev
    with_file --spare "$(drive 5)"
    strake set data spare_delay=2s
    dev=$(device data)
    load_start "$MNT/load" 64m
    host unplug 2
    wait_for 30 "a word of the lost drive" degraded_or_said
    wait_settled data 240
    say "rebuilt onto the spare: $(show data '[.members[].device] | join(" ")')"
    same "$(show data '.spares | length')" 0 "spares left"
    sleep 3
    load_stop
    known_is_there
    umount_fs
    user xfs_repair -n "$dev"
    mount_fs "$dev"
    # What was rebuilt must carry its part: without another drive everything is read through it.
    host unplug 0
    wait_state data degraded 30
    known_is_there
    verified_again "$MNT/known" 48m 7
    umount_fs
    user xfs_repair -n "$dev"
}

# A rebuild may be over before anybody looks; then the events tell.
degraded_or_said() { state_is data degraded || strake events | grep -qi degraded; }

scenario_daemon_kill() {
    local dev
    with_file --requests 48
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

# The other way of moving data through ublk, for kernels without user copy.
scenario_copy_mode() {
    local dev
    export STRAKE_UBLK_MODE=copy
    with_file
    same "$(show data .export.mode)" copy "the mode that show tells"
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

# The mode of kernels from 6.16 on, in which members fill the pages of larger healthy reads by themselves.
with_auto_buffer() {
    same "$(show data .export.mode)" auto-buffer "the mode that show tells"
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
    with_auto_buffer
    strake set data spare_delay=2s
    dev=$(device data)
    load_start "$MNT/load" 32m
    daemon_kill
    sleep 1
    daemon_start
    wait_state data optimal 60
    same "$(device data)" "$dev" "the device after a kill"
    with_auto_buffer
    host unplug 2
    wait_for 30 "a word of the lost drive" degraded_or_said
    wait_settled data 240
    load_stop
    known_is_there
    reads_in_place 100
    umount_fs
    user xfs_repair -n "$dev"
    mount_fs "$dev"
    host unplug 0
    wait_state data degraded 30
    known_is_there
    umount_fs
}

# RAID 5 becomes RAID 6 under fio, the daemon is killed while the parity is built; then two drives go.
scenario_restripe() {
    local dev
    with_file
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
    known_is_there
    umount_fs
    user xfs_repair -n "$dev"
    mount_fs "$dev"
    host unplug 0
    host unplug 3
    wait_state data degraded 30
    known_is_there
    verified_again "$MNT/known" 48m 7
    umount_fs
    user xfs_repair -n "$dev"
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
    daemon_start
    strake create data --level 5 --yes --force "${parts[@]}"
    dev=$(device data)
    user mkfs.xfs -q -f "$dev"
    mount_fs "$dev"
    verified "$MNT/known" 48m 7 --fsync_on_close=1
    digest "$MNT/known" 48 >"$RUN/known"
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
    for n in 0 1 2 3 4; do delpart "$(drive "$n")" 1; done
}

scenario_clean_stop() {
    with_file
    umount_fs
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

scenario_power_cut() {
    with_file
    cp "$RUN/known" "$SHARE/../known"
    sync
    load_start "$MNT/load" 64m
    host powercut
    sleep 60
    fail "the power is still there"
}

scenario_after_cut() {
    local dev
    daemon_start
    wait_settled data 120
    cp "$SHARE/../known" "$RUN/known"
    dev=$(device data)
    mount_fs "$dev"
    known_is_there
    umount_fs
    user xfs_repair -n "$dev"
    mount_fs "$dev"
    host unplug 1
    wait_state data degraded 30
    known_is_there
    verified_again "$MNT/known" 48m 7
    umount_fs
    user xfs_repair -n "$dev"
}

# What these look at was left by the boot before.
keeps_drives() {
    case $1 in
    fresh-boot | after-cut) true ;;
    *) false ;;
    esac
}

run_all "$@"
