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

# flash_bytes N…: bytes that these drives have written to their media by their FDP statistics (log 22h), together.
flash_bytes() {
    local n sum=0 bytes
    for n in "$@"; do
        bytes=$(nvme get-log "$(drive "$n")" --log-id=0x22 --lsi=1 --log-len=64 --raw-binary | od -A n -t u8 -j 16 -N 8)
        sum=$((sum + bytes))
    done
    echo "$sum"
}

# A study takes write amplification from these statistics: they count bytes, the log of the endurance group 10^9 bytes.
scenario_placed_study() {
    local names before after flash waf
    names=$(drives 0 1 2 3 | paste -sd,)
    printf '%s\n' 'name = "wear"' 'title = "Flash"' 'drive = "D5-P5336-61.44"' '[[case]]' 'name = "raid5"' \
        'array = { drives = 4, level = "5", strip = "64K" }' \
        '[[case.step]]' 'name = "create"' 'do = "create"' \
        '[[case.step]]' 'name = "fill"' 'do = "load"' 'on = "array"' 'loads = ["seq-write:1M:2"]' \
        'until = { passes = 0.2 }' \
        '[[case.step]]' 'name = "again"' 'do = "load"' 'on = "array"' 'loads = ["seq-write:1M:2"]' \
        'until = { passes = 0.2 }' >"$RUN/wear.toml"
    daemon_start
    before=$(flash_bytes 0 1 2 3)
    strake study run "$RUN/wear.toml" --on "$names" --yes-erase "$names" --out "$RUN/studies"
    after=$(flash_bytes 0 1 2 3)
    flash=$(jq '.cases[0].steps[2].figures.flash_written_bytes | round' "$RUN/studies/wear/result.json")
    waf=$(jq '.cases[0].steps[2].figures.waf * 100 | round' "$RUN/studies/wear/result.json")
    say "flash took $flash bytes in the load, $((after - before)) in all; write amplification $waf %"
    [ "$flash" -gt 100000000 ] && [ "$flash" -le $((after - before)) ] || fail "$flash of $((after - before)) bytes"
    # The emulated drive writes each byte once, zeroes too, which its SMART log does not count: the first load has them,
    # where regions are zeroed before they are written. SMART counts in units of 512,000 bytes.
    [ "$waf" -ge 95 ] && [ "$waf" -le 105 ] || fail "write amplification is $waf %"
}

# Nothing here is left for another boot.
keeps_drives() { false; }

run_all "$@"
