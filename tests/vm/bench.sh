# `cargo xtask bench vm`: raw drives, Linux md and Strake over memory-backed drives, side by side in one boot.
# Arguments: the shared folder, then `raid5`, `raid6` or both. The host writes what to do to bench.env in the shared
# folder, and reads what came of it there:
#
#   rows         measurements, a line each: level, state, load, subject, round, number of fio's report, what its
#                drives read and wrote meanwhile, in sectors, and of a window within it: nanoseconds, time in which the
#                CPUs were idle (of all together, in 1/100 s), and sectors that its device read and wrote
#   rebuilds     rebuilds, a line each: level, subject, load beside it, round, bytes, nanoseconds, numbers of fio's
#                reports of that load, during the rebuild and right before it (0: no load), and of the rebuild: time in
#                which the CPUs were idle, and sectors that the array's device read and wrote
#   drives       sequential writes to one raw drive, a line each: level, round, number of fio's report
#   idle         idle arrays, a line each: level, nanoseconds, and meanwhile: CPU time of Strake's daemon in 1/100 s and
#                of md's threads in nanoseconds, and time in which the CPUs were idle
#   fio/N.json   fio's reports, with a histogram of latencies
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
# A load beside a rebuild runs for so long before it begins; fio counts from then on.
LEAD_S=2
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

# run_fio REPORT LOAD SECONDS DEVICE[:DEVICE…] [OPTION…]: each job has an even part of every device to itself.
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
        --percentile_list=50:99:99.9 --output-format=json+ --output="$SHARE/fio/$1.json" "${@:5}" "${options[@]}"
}

# ---- CPU time -----------------------------------------------------------------------------------------

# Waits without a process, which would take CPU time of its own.
mkfifo "$RUN/nothing"
exec {NOTHING}<>"$RUN/nothing"
pause() { read -rt "$1" -u "$NOTHING" || true; }

# of_devices FIELD FIELD DEVICE[:DEVICE…]: the sum of two counters of these devices, as the kernel's stat has them.
of_devices() {
    local dev fields devs
    SUM=0
    IFS=: read -ra devs <<<"$3"
    for dev in "${devs[@]}"; do
        read -ra fields <"/sys/block/${dev##*/}/stat"
        SUM=$((SUM + fields[$1] + fields[$2]))
    done
}

# look DEVICE[:DEVICE…]: the clock in nanoseconds, the time in which the CPUs were idle so far, and the sectors that these
# devices have read and written, into LOOK. Without a process, as all of this.
look() {
    local fields
    of_devices 2 6 "$1"
    read -ra fields </proc/stat
    LOOK=("${EPOCHREALTIME/./}000" $((fields[4] + fields[5])) "$SUM")
}

# since NS IDLE SECTORS: what has come to these since then.
since() { echo "$((LOOK[0] - $1)) $((LOOK[1] - $2)) $((LOOK[2] - $3))"; }

# wait_for_load DEVICE[:DEVICE…] PID: until fio, which is that process, has had some requests answered. Leaves the last look
# before that in BEGIN, so that however late this one comes, no request is missed.
wait_for_load() {
    local first
    of_devices 0 4 "$1"
    first=$SUM
    for _ in $(seq 1200); do
        look "$1"
        BEGIN=("${LOOK[@]}")
        pause 0.05
        of_devices 0 4 "$1"
        [ $((SUM - first)) -lt 16 ] || return 0
        kill -0 "$2" 2>/dev/null || fail "fio ended before $1 had requests"
    done
    fail "$1 had no requests of fio in 60 s"
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
    local number drives before after pid
    number=$(report)
    drives=$(drives_of "$3")
    read -ra before < <(moved "$drives")
    run_fio "$number" "$2" "$SECONDS_EACH" "$5" &
    pid=$!
    wait_for_load "$5" "$pid"
    # Until shortly before its end.
    pause $((SECONDS_EACH - 1)).7
    look "$5"
    wait "$pid" || fail "fio on $5 failed: $2"
    read -ra after < <(moved "$drives")
    echo "$LEVEL $1 $2 $3 $4 $number $((after[0] - before[0])) $((after[1] - before[1]))" \
        "$(since "${BEGIN[@]}")" >>"$SHARE/rows"
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

# CPU time of all threads of md's array so far, in nanoseconds. What the kernel's work queues do for it is not theirs.
md_time() {
    local comm name ran sum=0 found=
    for comm in /proc/[0-9]*/comm; do
        read -r name 2>/dev/null <"$comm" || continue
        [[ $name == "${MD##*/}"_* ]] || continue
        read -r ran _ <"${comm%comm}schedstat"
        sum=$((sum + ran)) found=1
    done
    [ -n "$found" ] || fail "$MD has no thread"
    echo "$sum"
}

# idle: an array of each side is open, with nothing to do; nor has anything else in the guest.
idle() {
    local daemon md begin
    # What was written comes to rest first.
    sync
    wait_for 120 "md to be in sync" md_idle
    sleep "$IDLE_REST_S"
    daemon=$(daemon_ticks)
    md=$(md_time)
    look "$MD"
    begin=("${LOOK[@]}")
    pause "$IDLE_S"
    look "$MD"
    daemon=$(($(daemon_ticks) - daemon))
    md=$(($(md_time) - md))
    echo "$LEVEL $((LOOK[0] - begin[0])) $daemon $md $((LOOK[1] - begin[1]))" >>"$SHARE/idle"
}

md_idle() { [ "$(cat "/sys/block/${MD##*/}/md/sync_action")" = idle ]; }

# ---- rebuilds -----------------------------------------------------------------------------------------

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
    local begin number=0 alone=0 pid=
    fresh "$5"
    if [ "$2" != idle ]; then
        alone=$(report)
        run_fio "$alone" "$2" "$SECONDS_EACH" "$4" || fail "fio on $4 failed: $2"
        number=$(report)
        run_fio "$number" "$2" "$REBUILD_LIMIT_S" "$4" --ramp_time="$LEAD_S" &
        pid=$!
        wait_for_load "$4" "$pid"
        pause "$LEAD_S"
    fi
    hear
    look "$4"
    begin=("${LOOK[@]}")
    "$1_take" "$5"
    for _ in $(seq $((REBUILD_LIMIT_S * 10))); do
        "$1_whole" && break
        pause 0.1
    done
    "$1_whole" || fail "$1 did not rebuild in $REBUILD_LIMIT_S s beside $2"
    look "$4"
    if [ -n "$pid" ]; then
        pkill -INT -x fio || true
        wait "$pid" || true
        [ -s "$SHARE/fio/$number.json" ] || fail "fio beside the rebuild left no report"
    fi
    echo "$LEVEL $1 $2 $3 $((MEMBER_MIB << 20)) $((LOOK[0] - begin[0])) $number $alone" \
        "$((LOOK[1] - begin[1])) $((LOOK[2] - begin[2]))" >>"$SHARE/rebuilds"
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
