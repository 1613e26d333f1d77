# What drives do and say: their controllers are reset, the way to them fails, one does not answer, their logs beside
# what another client reads in them, and drives that tell how coarsely they write.
# Arguments: the shared folder, then scenarios.

. "${BASH_SOURCE[0]%/*}/lib.sh"

BSSPLIT=$MIX_4K

# The controller of drive N in sysfs.
controller() {
    local name
    name=$(drive "$1")
    name=${name##*/}
    echo "/sys/class/nvme/${name%n1}"
}

# Resets these controllers, all at once; returns when they work again.
reset() {
    local n pids=()
    for n in "$@"; do
        echo 1 >"$(controller "$n")/reset_controller" &
        pids+=($!)
    done
    wait "${pids[@]}"
}

# Each of the five, one after the other and once more, and twice two at once.
reset_all() {
    local n
    for n in 0 1 2 3 4 3 2 1 0; do
        reset "$n"
        sleep 0.3
    done
    reset 1 3
    sleep 0.3
    reset 0 4
    sleep 0.5
}

# caches WORDS DEVICE…: what the kernel says of the devices' write caches from now on.
caches() {
    local words=$1 name
    shift
    for name in "$@"; do echo "$words" >"/sys/block/${name##*/}/queue/write_cache"; done
}

out_events() { strake events | grep -c member_out || true; }
repeated() { grep -c 'did not get through, and is tried again' "$RUN/daemon.log" || true; }
came_back() { [ "$(strake events | grep -c partial_rebuild)" -ge "$1" ] && settled data; }

nobody_out() {
    state_is data optimal || fail "$1: the array is not optimal"
    same "$(out_events)" "$2" "$1: members that went out"
}

# What the load wrote agrees with its parity.
sound() {
    strake scrub data start --wait
    same "$(strake scrub data status --json | jq '[.. | .inconsistent_stripes? // empty][0]')" 0 "inconsistent stripes"
}

# Controllers are reset under load. The kernel repeats what was under way, so nobody notices, with a volatile cache
# (as the emulated drives have) or without.
scenario_reset() {
    local dev
    daemon_start
    create data 5 -- 0 1 2 3 4
    dev=$(device data)
    load_start "$dev" 16m
    reset_all
    nobody_out "resets" 0
    same "$(show data '[.members[] | .read_errors + .write_errors] | add')" 0 "errors counted against members"
    load_stop
    sound
}

# scsi_debug's drives, in order: modprobe options.
scsi_drives_start() {
    modprobe sd_mod
    modprobe scsi_debug add_host=4 per_host_store=1 dev_size_mb=208 sector_size=512 lbpu=1 lbpws=1 "$@"
    wait_for 30 "four SCSI drives" four_scsi_drives
    mapfile -t SCSI < <(scsi_drives)
}

# A module is in use for a moment after the last of its devices was closed.
scsi_drives_stop() {
    [ -d /sys/module/scsi_debug ] || return 0
    wait_for 30 "scsi_debug to go" modprobe -r scsi_debug
}

lay_anew_more() { scsi_drives_stop; }

scsi_drives() {
    local block
    for block in /sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block/sd*; do
        [ -b "/dev/${block##*/}" ] && echo "/dev/${block##*/}"
    done
    return 0
}

four_scsi_drives() { [ "$(scsi_drives | wc -l)" = 4 ]; }

# inject DEVICE RULE: what comes of its next commands, as drivers/scsi/scsi_debug.c has it:
# `0 -N OPCODE` loses N commands; `2 -N OPCODE HOST DRIVER STATUS KEY ASC ASCQ` answers N so.
inject() {
    local lun
    lun=$(readlink -f "/sys/block/${1##*/}/device")
    echo "$2" >"/sys/kernel/debug/scsi_debug/${lun##*/}/error"
}

# The way to these drives fails: host byte DID_TRANSPORT_FAILFAST, ENOLINK to whoever asked. Writes (10), reads (10).
way_fails() {
    local times=$1 one
    shift
    for one in "$@"; do
        inject "$one" "2 -$times 0x2a 0xf 0 0 0 0 0"
        inject "$one" "2 -$times 0x28 0xf 0 0 0 0 0"
    done
}

# Errors of the way to a drive, and commands without an answer: of drives without a volatile cache they are repeated,
# of one with it they put it out, and it comes back by itself.
scenario_path_errors() {
    local one
    daemon_start
    mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
    scsi_drives_start
    caches "write through" "${SCSI[@]}"
    strake create data --level 5 --export ublk --yes "${SCSI[@]}"
    wait_for 60 "the device of data" device data
    load_start "$(device data)" 16m
    for one in "${SCSI[@]}"; do
        way_fails 3 "$one"
        sleep 1
    done
    way_fails 2 "${SCSI[0]}" "${SCSI[2]}"
    sleep 2
    nobody_out "errors of the way" 0
    [ "$(repeated)" -ge 4 ] || fail "$(repeated) words of I/Os that were repeated"
    # A command is lost: the kernel waits for it, aborts it and sends it again.
    for one in "${SCSI[@]:0:2}"; do
        echo 2 >"/sys/block/${one##*/}/device/timeout"
        inject "$one" "0 -1 0x2a"
    done
    sleep 4
    load_stop
    same "$(dmesg | grep -c 'timeout command 0x2a')" 2 "writes that were lost"
    nobody_out "lost commands" 0
    same "$(show data '[.members[] | .read_errors + .write_errors] | add')" 0 "errors counted against members"
    say "words of I/Os that were repeated: $(repeated)"
    sound

    strake stop data
    caches "write back" "${SCSI[@]}"
    strake start data
    wait_for 60 "the device of data" device data
    load_start "$(device data)" 16m
    way_fails 1 "${SCSI[1]}"
    wait_for 20 "the member with a cache to be out" out_once
    wait_for 60 "the member by a partial rebuild" came_back 1
    load_stop
    same "$(show data '[.members[] | select(.state == "failed")] | length')" 0 "members that failed"
    sound
}

out_once() { [ "$(out_events)" -ge 1 ]; }

# A device that does not answer: for less than the deadline nobody notices; for longer it is out, is not taken back
# while its old I/Os are in the kernel, and then comes back by itself.
scenario_silence() {
    local dev mute
    daemon_start --io-timeout 8
    mute=$(drive 2)
    # At an offset: on the drive itself no superblock is found.
    dmsetup create mute --table "0 $(($(blockdev --getsz "$mute") - 4096)) linear $mute 2048"
    # shellcheck disable=SC2046
    strake create data --level 5 --export ublk --yes $(drives 0 1) /dev/mapper/mute $(drives 3 4)
    wait_for 60 "the device of data" device data
    dev=$(device data)
    load_start "$dev" 16m
    dmsetup suspend --nolockfs --noflush mute
    sleep 2
    dmsetup resume mute
    sleep 1
    nobody_out "silence for a quarter of the deadline" 0

    dmsetup suspend --nolockfs --noflush mute
    wait_state data degraded 40
    strake events | grep member_out | grep -q timed_out || fail "out, and not for the silence"
    same "$(show data '.members[2].state')" missing "the member that does not answer"
    sleep 2
    same "$(show data '.members[2].state')" missing "the member whose old I/Os are under way"
    dmsetup resume mute
    wait_for 60 "the member by a partial rebuild" came_back 1
    load_stop
    sound
    strake stop data
    dmsetup remove --retry mute
}

# The drives' own logs, as another client reads them.
scenario_drive_logs() {
    local n wear smart id said after before=()
    daemon_start
    create data 5 -- 0 1 2 3 4
    verified "$(device data)" 64m 1
    host warn 3
    for n in 0 3; do before[n]=$(written_by_smart "$n"); done
    wear=$(strake show data --wear --json)
    for n in 0 3; do
        smart=$(nvme smart-log -o json "$(drive "$n")")
        id=$(nvme id-ctrl -o json "$(drive "$n")")
        same "$(told "$n" '[.model, .serial]')" "$(jq -c '[.mn, .sn] | map(gsub("^ +| +$"; ""))' <<<"$id")" "names of drive $n"
        same "$(told "$n" '[.temperature_c, .available_spare_percent, .percentage_used]')" \
            "$(jq -c '[.temperature - 273, .avail_spare, .percent_used]' <<<"$smart")" "condition of drive $n"
        same "$(told "$n" '[.power_on_hours, .unsafe_shutdowns, .media_errors]')" \
            "$(jq -c '[.power_on_hours, .unsafe_shutdowns, .media_errors] | map(tonumber)' <<<"$smart")" "history of drive $n"
        # The array closes its regions meanwhile, so the drive may count one more.
        said=$(told "$n" .host_written_bytes)
        after=$(written_by_smart "$n")
        [ "${before[n]}" -le "$said" ] && [ "$said" -le "$after" ] ||
            fail "bytes written to drive $n: $said is not within ${before[n]} and $after"
        [ "$said" -gt 0 ] || fail "drive $n counted nothing"
    done
    # 64 MiB of a file on four strips of five.
    same "$(jq '[.members[] | .host_written_bytes > 16 * 1048576] | all' <<<"$wear")" true "every drive counts what was written"
    same "$(jq '[.members[] | .media_written_bytes == null] | all' <<<"$wear")" true "media bytes of drives that do not tell them"
    same "$(jq -c '[.members[].warnings | length]' <<<"$wear")" '[0,0,0,2,0]' "warnings"
    same "$(told 3 .warnings)" '["available spare below threshold","media read only"]' "warnings of drive 3"
    # As fixtures are recorded; see crates/strake/tests/pages.
    nvme get-log --log-id=2 --log-len=512 --raw-binary "$(drive 3)" >"$SHARE/smart.bin"
    nvme id-ctrl --raw-binary "$(drive 3)" >"$SHARE/controller.bin"
}

# written_by_smart N: the bytes that drive N counts as written, by nvme-cli.
written_by_smart() {
    nvme smart-log -o json "$(drive "$1")" | jq '(.data_units_written | tonumber) * 512000'
}

# told N FILTER: of what `strake show --wear` said of drive N.
told() { jq -c ".members[$1] | $2" <<<"$wear"; }

# Drives that tell that they write in units of 16 KiB.
scenario_granularity() {
    local json dev n unit=16384
    daemon_start
    scsi_drives_start physblk_exp=5
    same "$(cat "/sys/block/${SCSI[0]##*/}/queue/minimum_io_size")" $unit "what the kernel tells of it"

    refused create data --level 5 --strip 8K --yes "${SCSI[@]}" | grep -q strip-below-granularity ||
        fail "strips below the granularity"
    json=$(strake create data --level 5 --block-size 4096 --dry-run --json "${SCSI[@]:0:3}" 2>"$RUN/err")
    jq -r '.notes[]' <<<"$json" | grep -q 'blocks of 4 KiB on members that write in units of 16 KiB.* up to 4 times' ||
        fail "no note of blocks of 4 KiB: $json"
    strake create data --level 5 --export ublk --yes "${SCSI[@]:0:3}" 2>"$RUN/err"
    grep -q '^note: blocks of 512 B on members that write in units of 16 KiB.* up to 32 times' "$RUN/err" ||
        fail "no note of blocks of 512 bytes: $(cat "$RUN/err")"
    wait_for 60 "the device of data" device data
    same "$(($(show data .strip_bytes) % unit))" 0 "rest of a strip"
    for n in 0 1 2; do
        json=$(strake examine "${SCSI[$n]}" --json)
        same "$(jq ".data_offset_bytes % $unit" <<<"$json")" 0 "rest of the data offset of member $n"
    done
    dev=$(device data)
    same "$(($(cat "/sys/block/${dev##*/}/queue/minimum_io_size") % unit))" 0 "rest of what the array's device asks for at least"
    verified "$dev" 16m 1

    # A coarse device joins finer ones.
    create fine 5 --strip 8K -- 0 1 2
    json=$(strake add fine "${SCSI[3]}" --json)
    jq -r '.notes[]' <<<"$json" | grep -q 'writes in units of 16 KiB, strips are 8 KiB.* up to 2 times' ||
        fail "no note of a device that is coarser than strips: $json"
}

# Nothing here is left for another boot.
keeps_drives() { false; }

# ---- studies ------------------------------------------------------------------------------------------

# A study of four drives of 192 MiB: loads on them, on an array of them, and one that takes long enough to lose a drive.
wear_study() {
    cat >"$RUN/wear.toml" <<'STUDY'
name = "wear"
title = "What drives count around a load"
drive = "D5-P5336-61.44"

[[case]]
name = "raid5"
array = { drives = 4, level = "5", strip = "64K", rebuild_priority = 100 }

[[case.step]]
name = "raw"
do = "load"
on = "drives"
loads = ["seq-write:1M:2"]
until = { passes = 0.25 }

[[case.step]]
name = "create"
do = "create"

[[case.step]]
name = "fill"
do = "load"
on = "array"
loads = ["seq-write:1M:2"]
until = { passes = 0.1 }

[[case.step]]
name = "mixed"
do = "load"
on = "array"
loads = ["rand-mixed70:4K:4"]
until = { run = "10s" }
STUDY
}

STUDY=$RUN/studies/wear
# done_steps: names of the steps that the study has measured.
done_steps() { jq -r '[.cases[].steps[].name] | join(" ")' "$STUDY/result.json"; }
# figure STEP NAME: what it measured there, as a whole number.
figure() {
    jq -r --arg step "$1" --arg name "$2" \
        '.cases[].steps[] | select(.name == $step) | .figures[$name] | if . == null then "none" else round end' \
        "$STUDY/result.json"
}
step_begins() { grep -q "raid5, $1" "$RUN/study.log"; }

# between VALUE LEAST MOST WHAT
between() { [ "$1" -ge "$2" ] && [ "$1" -le "$3" ] || fail "$4: $1 is not $2 to $3"; }

# A drive's log counts thousands of 512 bytes: a look before and one after are each off by less than one.
UNITS=$((4 * 512000))

scenario_study() {
    local names pid code=0 wrote drives
    names=$(drives 0 1 2 3 | paste -sd,)
    wear_study
    daemon_start
    "$RUN/strake" study run "$RUN/wear.toml" --on "$names" --yes-erase "$names" --out "$RUN/studies" \
        >"$RUN/study.log" 2>&1 &
    pid=$!
    wait_for 300 "the last step" step_begins mixed
    sleep 2
    host unplug 2
    wait "$pid" || code=$?
    cat "$RUN/study.log"
    [ "$code" != 0 ] || fail "the study goes on although a drive died"
    grep -q 'step mixed of case raid5: .*slot 2' "$RUN/study.log" || fail "the error does not name step and slot"
    grep -q "strake study resume $STUDY" "$RUN/study.log" || fail "the error names no way on"
    same "$(done_steps)" "raw create fill" "steps that are kept"
    wrote=$(figure fill write_bytes_per_s)
    refused study resume "$STUDY" >"$RUN/missing.log"
    grep -q 'SN2.* is not here' "$RUN/missing.log" || fail "resume does not name the drive that is gone"

    host plug 2
    wait_settled study-wear-raid5 120
    strake study resume "$STUDY"
    same "$(done_steps)" "raw create fill mixed" "steps of the study"
    same "$(figure fill write_bytes_per_s)" "$wrote" "what was measured before the loss"

    # What was written to the drives themselves is what they say; an array of four adds a third to whole stripes.
    wrote=$(figure raw loads_wrote_bytes) drives=$(figure raw drives_written_bytes)
    say "raw: fio $wrote bytes, SMART $drives bytes"
    same "$wrote" $((4 * 48 << 20)) "bytes that fio wrote to the drives"
    between "$drives" $((wrote - UNITS)) $((wrote + UNITS)) "bytes written to the drives by their SMART logs"
    wrote=$(figure fill loads_wrote_bytes) drives=$(figure fill drives_written_bytes)
    say "fill: fio $wrote bytes, SMART $drives bytes"
    between "$drives" $((wrote * 4 / 3 - UNITS)) $((wrote * 2)) "the same of the array's members"
    same "$(figure raw waf)" none "write amplification of a drive without a counter of its flash"
    grep -q 'raw: waf is not known: a drive does not say what it wrote to its flash' "$STUDY/report.md" ||
        fail "the report does not say why write amplification is unknown"
    grep -q 'Written, by fio | Written to drives, by SMART |$' "$STUDY/report.md" ||
        fail "the report does not set SMART beside fio"
    strake scrub study-wear-raid5 status --json >/dev/null 2>&1 && fail "the study left its array"
    true
}

run_all "$@"
