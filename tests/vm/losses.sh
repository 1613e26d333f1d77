# Levels that survive several losses, and Linux md as the second opinion on what lies on the members.
# Arguments: the shared folder, then scenarios.

. "${BASH_SOURCE[0]%/*}/lib.sh"

BSSPLIT=$MIX_4K

# lose LEVEL MEMBERS FIRST SECOND [OPTION…]: an array of drives 0..MEMBERS-1 loses the drives FIRST at once,
# serves and is written, is rebuilt onto new ones, loses the drives SECOND, and still reads the same.
lose() {
    local level=$1 members=$2 first=$3 second=$4 dev n before
    shift 4
    daemon_start
    # shellcheck disable=SC2046
    create data "$level" "$@" -- $(seq 0 $((members - 1)))
    dev=$(device data)
    verified "$dev" 96m 1
    before=$(digest "$dev" 96)
    for n in $first; do host unplug "$n"; done
    wait_state data degraded 30
    same "$(digest "$dev" 96)" "$before" "digest with drives $first gone"
    # New data, written while they are gone, in a place that holds some and in one that holds none.
    verified "$dev" 32m 2 --offset=80m
    before=$(digest "$dev" 112)
    for n in $first; do
        host renew "$n"
        strake add data "$(drive "$n")"
    done
    wait_settled data 240
    same "$(digest "$dev" 112)" "$before" "digest after the rebuild"
    for n in $second; do host unplug "$n"; done
    wait_state data degraded 30
    same "$(digest "$dev" 112)" "$before" "digest with drives $second gone"
    verified_again "$dev" 32m 2 --offset=80m
}

scenario_raid6_two() { lose 6 6 "1 4" "0 3"; }
scenario_raid73_three() { lose 7.3 7 "0 3 5" "1 2 4"; }
scenario_raid50_one_each() { lose 50 8 "1 6" "0 7" --group-size 4; }

# The data areas of the members as block devices, each with room at its end for md's own superblock.
md_parts() {
    local n json slot start length loop
    for n in "$@"; do
        json=$(strake examine "$(drive "$n")" --json)
        slot=$(jq .slot <<<"$json")
        start=$(($(jq .data_offset_bytes <<<"$json") / 512))
        # Whole strips only: md takes no part of one.
        length=$(($(jq .data_bytes <<<"$json") / STRIP * STRIP / 512))
        truncate -s 4M "$RUN/tail.$slot"
        loop=$(losetup --find --show "$RUN/tail.$slot")
        dmsetup create "part$slot" <<TABLE
0 $length linear $(drive "$n") $start
$length 8192 linear $loop 0
TABLE
        echo "$length" >"$RUN/part.sectors"
    done
}

# md_digest LEVEL MEMBERS MISSING…: what md reads, with these slots missing.
md_digest() {
    local level=$1 members=$2 slot parts=() missing=" ${*:3} " bytes sum
    for slot in $(seq 0 $((members - 1))); do
        case $missing in
        *" $slot "*) parts+=(missing) ;;
        *) parts+=("/dev/mapper/part$slot") ;;
        esac
    done
    mdadm --create /dev/md77 --run --level="$level" --raid-devices="$members" --metadata=1.0 \
        --layout=left-symmetric --chunk=$((STRIP / 1024)) --assume-clean --bitmap=none \
        --size=$(($(cat "$RUN/part.sectors") / 2)) "${parts[@]}" >&2
    bytes=$(blockdev --getsize64 /dev/md77)
    [ "$bytes" -ge "$SIZE" ] || fail "md makes $bytes bytes of it, strake $SIZE"
    if [ "$missing" = "  " ]; then
        echo check >/sys/block/md77/md/sync_action
        wait_for 120 "md's check" md_idle
        same "$(cat /sys/block/md77/md/mismatch_cnt)" 0 "md's count of untrue parity"
    fi
    sum=$(dd if=/dev/md77 bs=1M iflag=direct,count_bytes count="$SIZE" status=none | md5sum)
    mdadm --stop /dev/md77 >&2
    echo "${sum%% *}"
}

md_idle() { [ "$(cat /sys/block/md77/md/sync_action)" = idle ]; }

md_clean() {
    local slot
    set +e # it runs at the end of a scenario, after success and after failure alike
    trap - ERR
    mdadm --stop /dev/md77 2>/dev/null
    for slot in $(seq 0 9); do
        dmsetup remove "part$slot" 2>/dev/null
        losetup -j "$RUN/tail.$slot" 2>/dev/null | cut -d: -f1 | xargs -r losetup -d
        rm -f "$RUN/tail.$slot"
    done
    return 0
}

# agrees LEVEL MEMBERS MISSING-SET…: md reads what strake wrote, whole and with each set of slots missing.
agrees() {
    local level=$1 members=$2 dev ours set
    shift 2
    daemon_start
    # shellcheck disable=SC2046
    create data "$level" -- $(seq 0 $((members - 1)))
    dev=$(device data)
    STRIP=$(show data .strip_bytes)
    SIZE=$(show data .size_bytes)
    # Everything once from one end to the other, then partial writes here and there.
    user fio --name=fill --filename="$dev" --ioengine=io_uring --direct=1 --rw=write --bs=1m \
        --iodepth=8 --size="$SIZE" --output="$RUN/fio.log"
    user fio --name=parts --filename="$dev" --ioengine=io_uring --direct=1 --rw=randwrite \
        --bssplit="$BSSPLIT" --iodepth=16 --size="$SIZE" --io_size=32m --output="$RUN/fio.log"
    ours=$(user dd if="$dev" bs=1M iflag=direct status=none | md5sum)
    ours=${ours%% *}
    say "level $level, strip $STRIP, $SIZE bytes, digest $ours"
    strake stop data
    daemon_stop
    # shellcheck disable=SC2046
    md_parts $(seq 0 $((members - 1)))
    trap md_clean EXIT
    same "$(md_digest "$level" "$members")" "$ours" "md's reading of the whole array"
    for set in "$@"; do
        # shellcheck disable=SC2086
        same "$(md_digest "$level" "$members" $set)" "$ours" "md's reading without slots $set"
    done
}

scenario_md_raid5() { agrees 5 5 0 3; }
scenario_md_raid6() { agrees 6 6 "0 1" "2 4"; }

keeps_drives() { false; }

run_all "$@"
