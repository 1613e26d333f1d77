# Power cuts, many of them: each boot checks what the last cut left and works until the next.
# Arguments: the shared folder, then `check`, `cut` or both. The host writes what kind of round this is to
# round.env in the shared folder.
#
# Two arrays live side by side through all rounds: `five` (RAID 5 of four drives, xfs) and `six` (RAID 6 of five,
# ext4). fio writes files with O_DSYNC and saves just before the cut how far it has come: all of that must be there
# afterwards. Beside it, files come and go, so that the file systems have a journal to recover.
#
#   KIND    healthy | degraded | hole: the kind of the cut to come
#   WAS     the same of the last one; empty in the first boot
#   CACHE   kept | lost: what becomes of writes that no flush followed (the drives of the latter have a
#           volatile cache that a cut empties, those of the former none)
#   ROUND   cuts so far
#   ABSENT  drives that are not there at this boot: lost in the same outage

. "${BASH_SOURCE[0]%/*}/lib.sh"
. "$SHARE/round.env"

BSSPLIT=$MIX_4K
# What must outlive the boot, beside the shared folders, which are laid anew for each.
KEEP=$SHARE/../$SET.keep
mkdir -p "$KEEP"
ARRAYS=(five six)
declare -A LEVEL=([five]=5 [six]=6) FS=([five]=xfs [six]=ext4)
declare -A OF=([five]="0 1 2 3" [six]="4 5 6 7 8")
# The drive of each that is failed in the degraded rounds.
declare -A FAILED=([five]=2 [six]=5)

# Drives without a volatile cache say so; these here cannot.
caches() {
    local n
    [ "$CACHE" = kept ] || return 0
    for n in $(seq 0 8); do
        is_absent "$n" || echo "write through" >"/sys/block/$(basename "$(drive "$n")")/queue/write_cache"
    done
}

is_absent() { [[ " $ABSENT " == *" $1 "* ]]; }

mnt() { echo "$MNT/$1"; }

mount_array() {
    mkdir -p "$(mnt "$1")"
    user mount "$(device "$1")" "$(mnt "$1")"
}

umount_array() {
    user umount "$(mnt "$1")"
    echo 3 >/proc/sys/vm/drop_caches
}

fs_check() {
    case ${FS[$1]} in
    xfs) user xfs_repair -n "$(device "$1")" ;;
    ext4) user e2fsck -fn "$(device "$1")" ;;
    esac
}

# The writes that are judged: their options must be the same before the cut and after it.
fio_state() {
    local round=$1 name jobs=()
    shift
    for name in "${ARRAYS[@]}"; do
        jobs+=(--name="$name-a" --filename="$(mnt "$name")/state.a" --size=48m)
        jobs+=(--name="$name-b" --filename="$(mnt "$name")/state.b" --size=48m)
    done
    # One request at a time in each file: fio's saved state is exact only then.
    user fio --aux-path="$KEEP" --ioengine=io_uring --iodepth=1 --direct=1 --rw=randwrite \
        --bssplit="$BSSPLIT" --verify=crc32c --randseed="$round" --output="$RUN/fio.log" "$@" "${jobs[@]}"
}

# Files come and go until the end of the world.
churn() {
    local n=0 dir
    dir=$(mnt "$1")/churn
    mkdir -p "$dir"
    while :; do
        n=$((n + 1))
        dd if=/dev/urandom of="$dir/$((n % 50))" bs=1k count=$((n % 90)) status=none
        mv "$dir/$((n % 50))" "$dir/moved.$((n % 7))"
        rm -f "$dir/$(((n + 25) % 50))"
        [ $((n % 10)) -eq 0 ] && sync -f "$dir"
    done
}
export -f churn mnt

scenario_check() {
    local name n state
    caches
    daemon_start
    state=optimal
    [ "$WAS" = healthy ] || state=degraded
    for name in "${ARRAYS[@]}"; do
        wait_for 60 "the device of $name" device "$name"
        same "$(show "$name" .state)" "$state" "the state of $name after the cut"
        mount_array "$name" # recovers the file system's journal
        same "$(digest "$(mnt "$name")/known" 16)" "$(cat "$KEEP/known.$name")" "known file of $name"
    done
    fio_state "$ROUND" --verify_state_load=1 --verify_only --verify_fatal=1 || {
        tail -n 30 "$RUN/fio.log"
        fail "what was acknowledged before the cut is not there"
    }
    say "round $ROUND ($WAS, cache $CACHE): $(grep -o 'READ:.*io=[^ ]*' "$RUN/fio.log" | grep -o 'io=.*') there"
    for name in "${ARRAYS[@]}"; do
        umount_array "$name"
        fs_check "$name"
    done
    # Lost in the outage, they come back after the verification, knowing nothing of it.
    for n in $ABSENT; do host plug "$n"; done
    [ "$WAS" = degraded ] || for name in "${ARRAYS[@]}"; do make_whole "$name"; done
}

make_whole() {
    local n
    for n in ${OF[$1]}; do
        is_absent "$n" || [ "$n" = "${2:-}" ] || continue
        drive "$n" >/dev/null
        strake add "$1" "$(drive "$n")" || say "drive $n is taken back without being asked"
    done
    wait_settled "$1" 240
}

# Parity is true once nothing is left to be made whole.
scrub() {
    local untrue
    strake scrub "$1" start
    wait_for 120 "the end of the scrub" no_jobs "$1"
    untrue=$(strake events --json | jq -s --arg name "$1" 'map(select(.array == $name and .cause == "scrub"
        and .event == "job_finished")) | last.inconsistent_stripes')
    same "$untrue" 0 "untrue stripes of $1"
}

no_jobs() { same "$(show "$1" '.jobs | length')" 0 jobs; }

first_time() {
    local name dir
    daemon_start
    for name in "${ARRAYS[@]}"; do
        # shellcheck disable=SC2046,SC2086
        create "$name" "${LEVEL[$name]}" -- ${OF[$name]}
        case ${FS[$name]} in
        xfs) user mkfs.xfs -q -f "$(device "$name")" ;;
        ext4) user mkfs.ext4 -q -F "$(device "$name")" ;;
        esac
        mount_array "$name"
        dir=$(mnt "$name")
        user dd if=/dev/urandom of="$dir/known" bs=1M count=16 conv=fsync status=none
        digest "$dir/known" 16 >"$KEEP/known.$name"
    done
}

# The arrays as the kind of the cut wants them.
prepare() {
    local name
    daemon_start
    for name in "${ARRAYS[@]}"; do
        wait_for 60 "the device of $name" device "$name"
        if [ "$KIND" = degraded ]; then
            # Failed already, from the second such round on.
            [ "$WAS" = degraded ] || strake fail "$name" "$(drive "${FAILED[$name]}")"
            wait_state "$name" degraded 30
        else
            [ "$WAS" != degraded ] || make_whole "$name" "${FAILED[$name]}"
            wait_settled "$name" 240
            scrub "$name"
        fi
        mount_array "$name"
    done
}

scenario_cut() {
    local name dir n
    caches
    if [ -z "$WAS" ]; then first_time; else prepare; fi
    rm -f "$KEEP"/*.state
    for name in "${ARRAYS[@]}"; do
        dir=$(mnt "$name")
        user rm -rf "$dir/state.a" "$dir/state.b" "$dir/churn"
        for n in a b; do user fallocate -l 48M "$dir/state.$n"; done
        user sync -f "$dir"
        MNT=$MNT user bash -c "churn $name" </dev/null &
    done
    n=$(($(cat "$RUN/asked" 2>/dev/null || echo 0) + 1))
    fio_state $((ROUND + 1)) --sync=dsync --do_verify=0 --verify_state_save=1 --trigger-timeout="$CUT_AFTER_S" \
        --trigger="sync -f $KEEP; echo powercut >$SHARE/ask.half; mv $SHARE/ask.half $SHARE/ask.$n; sleep 60"
    # It was done before its time: the cut hits the rest of the load.
    host powercut
    sleep 60
    fail "the power is still there"
}

# Everything that these look at was left by the boot before.
keeps_drives() { [ -n "$WAS" ]; }

run_all "$@"
