# `cargo xtask bench vm`: raw drives, Linux md and Strake over memory-backed drives, side by side in one boot.
# Arguments: the shared folder, then `raid5`, `raid6` or both. The host writes what to do to bench.env in the shared
# folder, and reads what came of it there:
#
#   rows         measurements, a line each: level, state, load, subject, round, number of fio's report, and what its
#                drives read and wrote meanwhile, in sectors
#   rebuilds     rebuilds, a line each: level, subject, load beside it, round, bytes, nanoseconds, numbers of fio's
#                reports of that load, during the rebuild and right before it (0: no load)
#   drives       sequential writes to one raw drive, a line each: level, round, number of fio's report
#   idle         an idle array, a line each: level, nanoseconds, and CPU time of its daemon meanwhile, in 1/100 s
#   fio/N.json   fio's reports
#
#   LOADS        names of loads, without spaces, as in `load` below
#   STATES       optimal, degraded or both
#   ROUNDS       of everything; SECONDS of each measurement
#   IDLE_S       seconds for which an open array has nothing to do
#   MEMBER_MIB   size of a member
#   DRIVE_IOPS   I/Os per second of a drive, DRIVE_MBPS 10^6 bytes per second; 0: as many as the CPUs manage
#
# Each subject has drives of its own (null_blk, memory-backed), and all exist at once, so that the subjects take turns
# within each round. All of them are written in full before anything is read: nobody is measured on blocks that were
# never written. The one exception says so: `nothing` is a Strake array that stays unwritten, whose reads touch no
# drive: what ublk and its server cost alone.

. "${BASH_SOURCE[0]%/*}/lib.sh"
. "$SHARE/bench.env"

NULLB=/sys/kernel/config/nullb
STRIP=128K
# I/Os that a drive with a limit works on at once.
DRIVE_DEPTH=4
# An array that was written has closed its regions by then.
IDLE_REST_S=10
mkdir -p "$SHARE/fio"
: >"$SHARE/rows"
: >"$SHARE/rebuilds"
: >"$SHARE/drives"
: >"$SHARE/idle"
: >"$RUN/reports"

# The drives are made here, for each level anew: there are none to wipe.
keeps_drives() { true; }

# ---- drives -------------------------------------------------------------------------------------------

# make_set NAME COUNT MIB
make_set() {
    local n folder
    for n in $(seq 0 $(($2 - 1))); do
        folder=$NULLB/$1$n
        mkdir "$folder"
        echo "$3" >"$folder/size"
        echo 1 >"$folder/memory_backed"
        echo 1 >"$folder/discard"
        if [ "$DRIVE_IOPS" = 0 ]; then
            echo 2 >"$folder/submit_queues"
        else
            # One queue of so many I/Os, each of which a timer ends when its time is over.
            echo 1 >"$folder/submit_queues"
            echo "$DRIVE_DEPTH" >"$folder/hw_queue_depth"
            echo 2 >"$folder/irqmode"
            echo $((DRIVE_DEPTH * 1000000000 / DRIVE_IOPS)) >"$folder/completion_nsec"
        fi
        [ "$DRIVE_MBPS" = 0 ] || echo "$DRIVE_MBPS" >"$folder/mbps"
        echo 1 >"$folder/power"
        wait_for 10 "drive $1$n" test -b "/dev/$1$n"
    done
}

drop_sets() {
    local folder
    for folder in "$NULLB"/*/; do
        [ -e "$folder/power" ] || continue
        echo 0 >"$folder/power"
        rmdir "$folder"
    done
}

# members SET COUNT, one a line
members() { seq -f "/dev/$1%g" 0 $(($2 - 1)); }

joined() { members "$@" | paste -sd:; }

# ---- loads --------------------------------------------------------------------------------------------

# load NAME: rw, block size, queue depth, jobs
load() {
    case $1 in
    sequential-read-512K) echo read 512k 32 2 ;;
    sequential-write-512K) echo write 512k 32 2 ;;
    sequential-write-128K) echo write 128k 32 2 ;;
    random-read-4K) echo randread 4k 32 2 ;;
    random-write-4K) echo randwrite 4k 32 2 ;;
    random-read-4K-qd1) echo randread 4k 1 1 ;;
    random-write-4K-qd1) echo randwrite 4k 1 1 ;;
    one-drive) echo write 512k 32 1 ;;
    *) fail "no load $1" ;;
    esac
}

is_write() { [[ $1 == *write* ]]; }

# The number of the next report of fio.
report() {
    echo . >>"$RUN/reports"
    wc -l <"$RUN/reports"
}

# run_fio REPORT LOAD SECONDS DEVICE[:DEVICE…]: each job has an even part of every device to itself.
run_fio() {
    local rw bs depth jobs bytes part count options=() j
    read -r rw bs depth jobs < <(load "$2")
    bytes=$(blockdev --getsize64 "${4%%:*}")
    count=$(tr : '\n' <<<"$4" | wc -l)
    part=$((bytes / jobs >> 20 << 20))
    for j in $(seq 0 $((jobs - 1))); do
        options+=(--name="job$j" --filename="$4" --offset=$((j * part)) --size=$((part * count))
            --rw="$rw" --bs="$bs" --iodepth="$depth")
    done
    user fio --ioengine=io_uring --direct=1 --time_based --runtime="$3" --randrepeat=0 \
        --norandommap --random_generator=tausworthe64 --group_reporting --thread \
        --percentile_list=50:99:99.9 --output-format=json --output="$SHARE/fio/$1.json" "${options[@]}"
}

# The drives of a subject, for a pattern of the shell.
drives_of() {
    case $1 in
    raw) echo nraw ;;
    md*) echo nmd ;;
    ublk-alone) echo nnothing ;;
    strake*) echo nstrake ;;
    *) fail "no subject $1" ;;
    esac
}

# moved SET: sectors that its drives have read and written since they were made.
moved() {
    local stat fields reads=0 writes=0
    for stat in /sys/block/"$1"[0-9]*/stat; do
        read -ra fields <"$stat"
        reads=$((reads + fields[2])) writes=$((writes + fields[6]))
    done
    echo "$reads $writes"
}

# measure STATE LOAD SUBJECT ROUND DEVICE[:DEVICE…]
measure() {
    local number drives before after
    number=$(report)
    drives=$(drives_of "$3")
    read -ra before < <(moved "$drives")
    run_fio "$number" "$2" "$SECONDS_EACH" "$5" || fail "fio on $5 failed: $2"
    read -ra after < <(moved "$drives")
    echo "$LEVEL $1 $2 $3 $4 $number $((after[0] - before[0])) $((after[1] - before[1]))" >>"$SHARE/rows"
}

fill() {
    user fio --name=fill --filename="$1" --ioengine=io_uring --direct=1 --rw=write --bs=1m \
        --iodepth=16 --output="$RUN/fill.log" || fail "fio could not fill $1"
}

# ---- subjects -----------------------------------------------------------------------------------------

MD=/dev/md70

md_make() {
    local policy=resync
    # Only an array that begins with the partial parity log has room for it later.
    [ "$LEVEL" = 5 ] && policy=ppl
    # The drives are zeros, so parity is true from the start.
    mdadm --create "$MD" --run --assume-clean --level="$LEVEL" --raid-devices="$N" --chunk=128 \
        --metadata=1.2 --bitmap=none --consistency-policy="$policy" $(members nmd "$N")
    [ "$LEVEL" = 5 ] && mdadm --grow "$MD" --consistency-policy=resync
    echo 8192 >"/sys/block/${MD##*/}/md/stripe_cache_size"
    echo 2 >"/sys/block/${MD##*/}/md/group_thread_cnt"
    echo 10000000 >/proc/sys/dev/raid/speed_limit_max
}

strake_make() {
    daemon_start
    strake create bench --level "$LEVEL" --strip "$STRIP" --export ublk --yes $(members nstrake "$N")
    wait_for 60 "the devices" device bench
}

# What is measured later than `idle`.
strake_more() {
    strake create nothing --level 5 --strip "$STRIP" --export ublk --yes $(members nnothing 3)
    wait_for 60 "the devices" device nothing
    # One process that waits, instead of one for each question.
    "$RUN/strake" events --follow --json >"$RUN/told" </dev/null &
}

subjects_round() {
    local state=$1 name=$2 round=$3
    measure "$state" "$name" raw "$round" "$(joined nraw "$N")"
    measure "$state" "$name" md "$round" "$MD"
    if is_write "$name"; then
        if [ "$state" = optimal ]; then
            mdadm --grow "$MD" --bitmap=internal
            # A new bitmap says that everything is to be synced.
            wait_for 120 "md to be in sync" md_idle
            measure "$state" "$name" md+bitmap "$round" "$MD"
            mdadm --grow "$MD" --bitmap=none
        fi
        if [ "$state" = optimal ] && [ "$LEVEL" = 5 ]; then
            # What md has for the write hole, for RAID 5 alone.
            mdadm --grow "$MD" --consistency-policy=ppl
            measure "$state" "$name" md+ppl "$round" "$MD"
            mdadm --grow "$MD" --consistency-policy=resync
        fi
        strake set bench write_hole=resync
        measure "$state" "$name" strake+resync "$round" "$(device bench)"
        strake set bench write_hole=closed
    elif [ "$state" = optimal ]; then
        measure "$state" "$name" ublk-alone "$round" "$(device nothing)"
    fi
    measure "$state" "$name" strake "$round" "$(device bench)"
}

# ---- idle ---------------------------------------------------------------------------------------------

# daemon_ticks: CPU time of all threads of the daemon so far, in 1/100 s, as the kernel tells it to users.
daemon_ticks() {
    local pid stat fields
    read -r pid <"$RUN/daemon.pid"
    stat=$(<"/proc/$pid/stat")
    # The name of the program may hold anything; what follows begins with the third field.
    read -ra fields <<<"${stat##*) }"
    echo $((fields[11] + fields[12]))
}

# idle: one array is open, with nothing to do; nor has anything else in the guest.
idle() {
    local before after begin end
    # What was written comes to rest first.
    sync
    wait_for 120 "md to be in sync" md_idle
    sleep "$IDLE_REST_S"
    before=$(daemon_ticks)
    begin=$(now)
    sleep "$IDLE_S"
    after=$(daemon_ticks)
    end=$(now)
    echo "$LEVEL $((end - begin)) $((after - before))" >>"$SHARE/idle"
}

md_idle() { [ "$(cat "/sys/block/${MD##*/}/md/sync_action")" = idle ]; }

# ---- rebuilds -----------------------------------------------------------------------------------------

now() { date +%s%N; }

# Asked for ten times a second, and processes are dear in an emulated machine: these start none.
md_whole() {
    local missing
    read -r missing <"/sys/block/${MD##*/}/md/degraded"
    [ "$missing" = 0 ]
}

strake_whole() {
    local told
    told=$(<"$RUN/told")
    [[ ${told:$HEARD} == *'"member_in_sync"'* ]]
}

# From here on only what is told later counts.
hear() { HEARD=$(stat -c %s "$RUN/told"); }

# The drive of a set that is not a member now, wiped.
fresh() {
    wipefs -qaf "$1"
    # A drive that is held to a rate never lets a request pass that is larger than what it moves in a fiftieth of a second.
    if [ "$DRIVE_MBPS" = 0 ]; then blkdiscard -f "$1"; else blkdiscard -f -p 1M "$1"; fi
}

md_lose() {
    mdadm "$MD" --fail "$1"
    wait_for 30 "md to let go of $1" mdadm "$MD" --remove "$1"
}

md_take() { mdadm "$MD" --add "$1"; }

strake_lose() { strake fail bench 1 && strake remove bench 1; }

strake_take() { strake add bench "$1"; }

# one_drive ROUND: what a rebuild's new member could be written at.
one_drive() {
    local number
    number=$(report)
    run_fio "$number" one-drive "$SECONDS_EACH" /dev/nraw0 || fail "fio on one raw drive failed"
    echo "$LEVEL $1 $number" >>"$SHARE/drives"
}

# rebuild SUBJECT LOAD|idle ROUND DEVICE NEW: the array misses a member; from the word that gives it a new one until it is whole.
rebuild() {
    local begin end number=0 alone=0 fio_pid=
    fresh "$5"
    if [ "$2" != idle ]; then
        alone=$(report)
        run_fio "$alone" "$2" "$SECONDS_EACH" "$4" || fail "fio on $4 failed: $2"
        number=$(report)
        run_fio "$number" "$2" "$REBUILD_LIMIT_S" "$4" &
        fio_pid=$!
        sleep 2
    fi
    hear
    begin=$(now)
    "$1_take" "$5"
    for _ in $(seq $((REBUILD_LIMIT_S * 10))); do
        "$1_whole" && break
        sleep 0.1
    done
    "$1_whole" || fail "$1 did not rebuild in $REBUILD_LIMIT_S s beside $2"
    end=$(now)
    if [ -n "$fio_pid" ]; then
        pkill -INT -x fio || true
        wait "$fio_pid" || true
        [ -s "$SHARE/fio/$number.json" ] || fail "fio beside the rebuild left no report"
    fi
    echo "$LEVEL $1 $2 $3 $((MEMBER_MIB << 20)) $((end - begin)) $number $alone" >>"$SHARE/rebuilds"
}

# ---- levels -------------------------------------------------------------------------------------------

rounds_of() {
    local round name
    [[ " $STATES " == *" $1 "* ]] || return 0
    for round in $(seq "$ROUNDS"); do
        for name in $LOADS; do
            [[ $1 == degraded && $name == *-qd1 ]] || subjects_round "$1" "$name" "$round"
        done
        say "RAID $LEVEL $1, round $round of $ROUNDS, after $SECONDS s"
    done
}

level_run() {
    LEVEL=$1 N=$2
    local round name beside spare old
    # With the module comes configfs.
    modprobe null_blk nr_devices=0
    mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
    make_set nraw "$N" "$MEMBER_MIB"
    make_set nmd $((N + 1)) "$MEMBER_MIB"
    make_set nstrake $((N + 1)) "$MEMBER_MIB"
    make_set nnothing 3 64
    md_make
    strake_make
    for name in "$(joined nraw "$N")" "$MD" "$(device bench)"; do fill "$name"; done
    say "RAID $LEVEL of $N: filled after $SECONDS s"
    idle
    strake_more
    say "RAID $LEVEL idle, after $SECONDS s"
    rounds_of optimal
    md_lose /dev/nmd1
    strake_lose
    rounds_of degraded
    spare=$N old=1
    for round in $(seq "$ROUNDS"); do
        [ -z "$REBUILDS" ] || one_drive "$round"
        for beside in $REBUILDS; do
            rebuild md "$beside" "$round" "$MD" "/dev/nmd$spare"
            md_lose "/dev/nmd$spare"
            rebuild strake "$beside" "$round" "$(device bench)" "/dev/nstrake$spare"
            strake_lose
            # What was lost takes the place of what comes.
            name=$spare spare=$old old=$name
        done
        say "RAID $LEVEL rebuilds, round $round of $ROUNDS, after $SECONDS s"
    done
    strake stop --all
    daemon_stop
    mdadm --stop "$MD"
    drop_sets
}

scenario_raid5() { level_run 5 5; }

scenario_raid6() { level_run 6 6; }

run_all "$@"
