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

# ---- a study of Linux md ------------------------------------------------------------------------------

md_study() {
    cat >"$RUN/md.toml" <<'STUDY'
name = "beside"
title = "Linux md on the drives that Strake would get"
drive = "D5-P5336-61.44"

[[case]]
name = "raid5"
array = { drives = 4, level = "5", strip = "64K" }

[[case.step]]
name = "bare"
do = "idle"
until = { run = "2s" }

[[case.step]]
name = "create"
do = "create"

[[case.step]]
name = "fill"
do = "load"
on = "array"
loads = ["seq-write:1M:4"]
until = { passes = 1 }

[[case.step]]
name = "quiet"
do = "idle"
until = { ramp = "1s", run = "2s" }

[[case.step]]
name = "lose"
do = "fail"
slot = 1

[[case.step]]
name = "degraded"
do = "load"
on = "array"
loads = ["rand-read:4K:8"]
until = { run = "8s" }

[[case.step]]
name = "rebuild"
do = "rebuild"
slot = 1
beside = ["rand-read:4K:2"]

[[case.step]]
name = "check"
do = "scrub"
STUDY
}

BESIDE=$RUN/studies/beside
measured() {
    jq -r --arg step "$1" --arg name "$2" \
        '.cases[].steps[] | select(.name == $step) | .figures[$name] // "none"' "$BESIDE/result.json"
}
above_zero() { jq -en --argjson value "$1" '$value > 0' >/dev/null || fail "$2 is $1"; }
degraded_begins() { grep -q "raid5, degraded" "$RUN/study.log"; }
no_md() { ! grep -q active /proc/mdstat; }

scenario_md_study() {
    local names pid name
    names=$(drives 0 1 2 3 | paste -sd,)
    md_study
    "$RUN/strake" study run "$RUN/md.toml" --on "$names" --yes-erase "$names" --out "$RUN/studies" --engine md \
        >"$RUN/study.log" 2>&1 &
    pid=$!
    wait_for 120 "the degraded array's load" degraded_begins
    sleep 1
    kill -KILL "$pid"
    wait "$pid" || true
    cat "$RUN/study.log"
    same "$(jq -r '[.cases[].steps[].name] | join(" ")' "$BESIDE/result.json")" "bare create fill quiet lose" \
        "steps that are kept"
    wait_for 30 "the end of fio" no_fio
    strake study resume "$BESIDE"
    same "$(jq -r '.engine' "$BESIDE/result.json")" md "the engine of the study"
    for name in fill degraded rebuild; do
        above_zero "$(measured "$name" cores)" "cores of $name"
        say "$name: $(measured "$name" cores) cores, $(measured "$name" iops_per_core) requests/s a core," \
            "p99.99 $(measured "$name" p9999_us) us"
    done
    say "idle: $(measured bare cores) cores without an array, $(measured quiet cores) with it"
    above_zero "$(measured degraded iops_per_core)" "requests a core"
    above_zero "$(measured rebuild p9999_us)" "p99.99 while rebuilding"
    above_zero "$(measured check seconds)" "seconds of the check"
    same "$(measured quiet iops)" none "requests of a step without loads"
    grep -q 'md with group_thread_cnt' "$BESIDE/report.md" || fail "the report does not say how md was set up"
    no_md || fail "the study left its array"
    for name in $(drives 0 1 2 3); do
        mdadm --examine "$name" >/dev/null 2>&1 && fail "$name still has md's superblock"
    done
    true
}
no_fio() { ! pgrep -x fio >/dev/null; }

keeps_drives() { false; }

run_all "$@"
