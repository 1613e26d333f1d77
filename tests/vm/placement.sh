# Drives with placement handles (NVMe FDP): what an array writes goes to the handle that it is meant for.
# Arguments: the shared folder, then scenarios.
#
# A drive tells of each handle how many blocks its reclaim unit has left. These units are larger than the drives, so
# what is missing is all that was ever written by that handle.

. "${BASH_SOURCE[0]%/*}/lib.sh"

# Blocks of a reclaim unit: 1 GiB, as the host makes the drives.
UNIT_BLOCKS=2097152

# by_handle N: blocks that drive N was given by each of its handles, first to last.
by_handle() {
    nvme fdp status "$(drive "$1")" |
        sed -n 's/.*(RUAMW): *\([0-9]*\).*/\1/p' |
        while read -r left; do echo $((UNIT_BLOCKS - left)); done | tr '\n' ' '
}

# What went where, as words for a reader of the log; and into DATA, REBUILD, LOG, PARITY, OTHERS.
look() {
    local blocks
    read -ra blocks <<<"$(by_handle "$1")"
    [ ${#blocks[@]} = 8 ] || fail "drive $1 tells of ${#blocks[@]} handles, not 8: ${blocks[*]}"
    DATA=${blocks[0]} REBUILD=${blocks[1]} LOG=${blocks[2]} PARITY=${blocks[3]}
    OTHERS=$((blocks[4] + blocks[5] + blocks[6] + blocks[7]))
    say "drive $1, blocks by handle: data $DATA, rebuild $REBUILD, log $LOG, parity $PARITY, others $OTHERS"
}

write_blocks() {
    fio --name=blocks --filename="$1" --size=48m --randseed="$2" --ioengine=io_uring --direct=1 --rw=randwrite \
        --bs=4k --iodepth=16 --number_ios=2000 --output="$RUN/fio.log" || {
        tail -n 20 "$RUN/fio.log"
        fail "fio failed"
    }
}

scenario_placement() {
    local dev n name was
    for n in 0 1 2 3 4; do
        name=$(drive "$n")
        same "$(cat "/sys/block/${name##*/}/queue/max_write_streams")" 8 "write streams of drive $n"
    done
    daemon_start
    create data 5 -- 0 1 2 3
    # It ends with a code of its own where there are findings.
    "$RUN/strake" doctor >"$RUN/doctor.log" || true
    grep -q 'placement handles: 8; data, parity, the log' "$RUN/doctor.log" || fail "doctor does not tell of the handles"
    dev=$(device data)
    write_blocks "$dev" 1
    for n in 0 1 2 3; do
        look "$n"
        [ "$DATA" -gt 1000 ] && [ "$PARITY" -gt 1000 ] && [ "$LOG" -gt 1000 ] || fail "drive $n: a handle got too little"
        same "$REBUILD $OTHERS" "0 0" "what handles of a rebuild and of nothing got on drive $n"
    done

    # Rebuilt, a drive has what the others have of data and parity, by the handle of the rebuild alone.
    strake fail data "$(drive 0)"
    wait_state data degraded 30
    strake add data "$(drive 4)"
    wait_settled data 120
    look 4
    was=$REBUILD
    [ "$REBUILD" -gt 10000 ] || fail "the rebuild wrote $REBUILD blocks by its handle"
    [ $((DATA + PARITY)) -lt 5000 ] || fail "$DATA and $PARITY blocks of data and parity before anything was written"
    same "$OTHERS" 0 "what handles of nothing got on drive 4"
    write_blocks "$dev" 2
    for n in 1 2 3; do
        look "$n"
        same "$REBUILD" 0 "what the handle of the rebuild got on drive $n"
    done
    look 4
    same "$REBUILD" "$was" "what the handle of the rebuild got after the rebuild"
    [ "$DATA" -gt 1000 ] && [ "$PARITY" -gt 1000 ] && [ "$LOG" -gt 1000 ] || fail "drive 4: a handle got too little"
    strake scrub data start --wait
    same "$(strake scrub data status --json | jq '[.. | .inconsistent_stripes? // empty][0]')" 0 "inconsistent stripes"
}

# Nothing here is left for another boot.
keeps_drives() { false; }

run_all "$@"
