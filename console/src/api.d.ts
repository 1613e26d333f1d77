// Made by types.mjs of the daemon's OpenAPI document.

export interface AlertChannel {
  arrays: string[];
  delivered: number;
  dropped: number;
  failing: boolean;
  failing_since: string | null;
  failures: number;
  last_error: string | null;
  last_error_at: string | null;
  last_success: string | null;
  name: string;
  queued: number;
  severity: string;
  to: string;
  way: string;
}

export interface AlertFailing {
  channel: string;
  error: string | null;
  since: string | null;
}

export interface AlertTest {
  channel: string;
  delivered: boolean;
  dry_run: boolean;
  error: string | null;
}

export interface AlertTestRequest {
  channel?: string | null;
  dry_run?: boolean;
}

export interface AlertTests {
  channels: AlertTest[];
}

export interface Alerts {
  channels: AlertChannel[];
  configuration_not_used?: string | null;
  unwritten_files: number;
}

export interface Array {
  alerts_failing: AlertFailing[];
  block_bytes: number;
  carved: boolean;
  conflict?: Error | null;
  daemon: boolean;
  degraded_start: string;
  destroyed: string | null;
  device: string | null;
  epoch: number;
  export: Export | null;
  fixed_parities: number;
  group_size: number | null;
  jobs: Job[];
  last_scrub: Scrub | null;
  latency_target_us: number;
  level: string;
  may_be_on?: string[];
  members: Member[];
  moving: Moving | null;
  name: string;
  not_found: boolean;
  placement: Placed | null;
  set_aside: SetAside[];
  size_bytes: number;
  spares: Member[];
  startable: boolean | null;
  state: string;
  strip_bytes: number;
  undecided: Range[];
  undecided_bytes: number;
  undecided_regions: number;
  unreadable: Range[];
  unreadable_bytes: number;
  unwritten_bytes: number;
  uuid: string;
  volume_free_bytes: number | null;
  volume_table_damaged: boolean;
  volume_unit_bytes: number | null;
  volumes: Volume[];
  would_wipe?: string[];
  write_hole: string;
}

export interface Backup {
  arrays: BackupArray[];
  pools?: BackupPool[];
  strake_backup: number;
  taken: string;
}

export interface BackupArray {
  band_rows?: number;
  block_bytes: number;
  carved: boolean;
  epoch?: number;
  export: string;
  fixed_parities: number;
  group_size: number;
  layout: BackupLayout;
  level: string;
  members: BackupMember[];
  moving?: boolean;
  name: string;
  settings: Settings;
  strip_bytes: number;
  uuid: string;
}

export interface BackupLayout {
  data_bytes: number;
  data_offset: number;
  log_bytes: number;
  log_offset: number;
  map_offset: number;
  map_pages: number;
  page_regions: number;
  region_bytes: number;
  unreadable_bytes: number;
}

export interface BackupMember {
  device?: string | null;
  in_sync: boolean;
  uuid: string;
}

export interface BackupPool {
  devices: BackupPoolDevice[];
  name: string;
  uuid: string;
}

export interface BackupPoolDevice {
  device: string;
  size_bytes: number;
  uuid: string;
  wwid?: string | null;
}

export interface Bucket {
  below_ns: number;
  count: number;
}

export interface CleanRequest {
  devices: string[];
  dry_run?: boolean;
}

export interface Cleaned {
  devices: CleanedDevice[];
  dry_run: boolean;
}

export interface CleanedDevice {
  device: string;
  was: string;
}

export interface CreateRequest {
  block_bytes?: number | null;
  cpus?: string | null;
  degraded?: string | null;
  devices: string[];
  dry_run?: boolean;
  export?: string | null;
  force?: boolean;
  group_size?: number | null;
  init?: string | null;
  latency_target_us?: number | null;
  level: string;
  memory_limit_bytes?: number | null;
  name: string;
  pool?: string | null;
  requests?: number | null;
  shards?: number | null;
  spares?: string[];
  strip_bytes?: number | null;
  write_hole?: string | null;
}

export interface Created {
  alerts_failing: AlertFailing[];
  block_bytes: number;
  carved: boolean;
  conflict?: Error | null;
  daemon: boolean;
  degraded_start: string;
  destroyed: string | null;
  device: string | null;
  dry_run: boolean;
  epoch: number;
  export: Export | null;
  fixed_parities: number;
  group_size: number | null;
  jobs: Job[];
  last_scrub: Scrub | null;
  latency_target_us: number;
  level: string;
  may_be_on?: string[];
  members: Member[];
  moving: Moving | null;
  name: string;
  not_found: boolean;
  notes: string[];
  placement: Placed | null;
  serving: boolean;
  set_aside: SetAside[];
  size_bytes: number;
  spares: Member[];
  startable: boolean | null;
  state: string;
  strip_bytes: number;
  undecided: Range[];
  undecided_bytes: number;
  undecided_regions: number;
  unreadable: Range[];
  unreadable_bytes: number;
  unwritten_bytes: number;
  uuid: string;
  volume_free_bytes: number | null;
  volume_table_damaged: boolean;
  volume_unit_bytes: number | null;
  volumes: Volume[];
  would_wipe?: string[];
  write_hole: string;
}

export interface DeviceRequest {
  device?: string | null;
  dry_run?: boolean;
  force?: boolean;
  member?: string | null;
}

export interface Distribution {
  buckets: Bucket[];
  count: number;
  max_ns: number;
  recent: Latency | null;
  sum_ns: number;
}

export interface Drive {
  array: string | null;
  block_bytes: number | null;
  device: string;
  model: string | null;
  pool: string | null;
  problem: Error | null;
  serial: string | null;
  size_bytes: number | null;
  slot: number | null;
  use: string;
}

export interface DriveDone {
  changed: boolean;
  device: string;
  what: string;
}

export interface DriveLocateRequest {
  device: string;
  dry_run?: boolean;
  on: boolean;
}

export interface DryRequest {
  dry_run?: boolean;
}

export interface Error {
  code: string;
  cure: string;
  found: string;
}

export interface Event {
  array: string | null;
  cause: string | null;
  device: string | null;
  effect: string | null;
  errno: number | null;
  event: string;
  inconsistent_stripes: number | null;
  repaired_stripes: number | null;
  sequence: number;
  severity: string;
  slot: number | null;
  time: string;
  uuid: string | null;
}

export interface Explain {
  block_bytes: number;
  column: number;
  data: Place;
  group: number;
  lba: number;
  name: string;
  offset_bytes: number;
  redundancy: Place[];
  region: number;
  region_state: string | null;
  row: number;
  stripe: number;
  undecided: boolean;
  unreadable: boolean;
}

export interface Export {
  depth: number | null;
  kernel_features: string[] | null;
  kind: string;
  mode: string | null;
  queues: number | null;
}

export interface Gap {
  after_sequence: number;
  next_sequence: number;
  reason: string;
}

export interface GrowRequest {
  dry_run?: boolean;
}

export interface HedgedReads {
  issued: number;
  lost: number;
  refused: number;
  won: number;
}

export interface ImportRequest {
  devices?: string[];
  dry_run?: boolean;
  export?: string | null;
  force?: boolean;
  name?: string | null;
}

export interface IoStats {
  bytes: number;
  count: number;
  latency: Distribution;
}

export interface Job {
  done_bytes: number;
  eta_s: number | null;
  foreground_p99_us: number | null;
  held_back_by: string;
  inconsistent_stripes: number;
  kind: string;
  partial: boolean;
  paused: boolean;
  paused_by: string | null;
  rate_bytes_per_s: number;
  repaired_stripes: number;
  slot: number | null;
  total_bytes: number;
}

export interface JobRequest {
  action: string;
  dry_run?: boolean;
  halt?: boolean;
  repair?: boolean;
}

export interface Latencies {
  members: MemberLatencies[];
  name: string;
}

export interface Latency {
  p50_us: number;
  p999_us: number;
  p99_us: number;
}

export interface LocateRequest {
  dry_run?: boolean;
  member: string;
  on: boolean;
}

export interface Member {
  device: string | null;
  doubted: string | null;
  full_since: string | null;
  hedged_reads: HedgedReads;
  mismatches: number;
  read_errors: number;
  read_latency: Latency | null;
  retries: Retries;
  slot: number | null;
  slow: boolean;
  spare_in_s: number | null;
  state: string;
  uuid: string | null;
  was: Was | null;
  write_errors: number;
  write_latency: Latency | null;
}

export interface MemberLatencies {
  device: string | null;
  reads: Distribution;
  slot: number;
  writes: Distribution;
}

export interface MemberRequest {
  dry_run?: boolean;
  member: string;
}

export interface MemberStats {
  device: string | null;
  hedged_reads: number;
  reads: IoStats;
  slot: number;
  state: string;
  writes: IoStats;
}

export interface Moving {
  from_columns: number;
  from_fixed_parities: number;
  from_group_size: number | null;
  from_strip_bytes: number;
  moved_bytes: number;
  stopped: boolean;
  to_columns: number;
  to_fixed_parities: number;
  to_group_size: number | null;
  to_strip_bytes: number;
  total_bytes: number;
}

export interface Outcome {
  array: string;
  changed: boolean;
  ended?: string | null;
  notes: string[];
  scrub?: Scrub | null;
  what: string;
}

export interface Place {
  device: string | null;
  kind: string;
  member_offset_bytes: number;
  member_state: string;
  slot: number;
}

export interface Placed {
  cpus: string | null;
  memory_bytes: number;
  numa_nodes: number[];
  requests: number | null;
  shards: number;
}

export interface Pool {
  arrays: PoolUser[];
  devices: PoolDevice[];
  name: string;
  silent?: string[];
  uuid: string | null;
}

export interface PoolDevice {
  block_bytes: number;
  device: string;
  problem?: string | null;
  size_bytes: number;
  uuid: string;
}

export interface PoolDone {
  changed: boolean;
  pool: string;
  what: string;
}

export interface PoolRequest {
  all?: boolean;
  devices?: string[];
  dry_run?: boolean;
  force?: boolean;
}

export interface PoolUser {
  fitting: number;
  name: string;
}

export interface Range {
  len_bytes: number;
  offset_bytes: number;
}

export interface RenameRequest {
  dry_run?: boolean;
  name: string;
}

export interface ResetRequest {
  dry_run?: boolean;
  member?: string | null;
}

export interface RestoreRequest {
  accept_stale?: boolean;
  backup: Backup;
  devices?: string[];
  dry_run?: boolean;
  force?: boolean;
  names?: string[];
  slots?: SlotDevice[];
}

export interface Restored {
  arrays: RestoredArray[];
  dry_run: boolean;
  pools: RestoredPool[];
}

export interface RestoredArray {
  devices: string[];
  doubt?: string | null;
  name: string;
  not_applied: string | null;
  restored: boolean;
  what: string;
}

export interface RestoredPool {
  devices: string[];
  name: string;
  restored: boolean;
  what: string;
}

export interface RestripeRequest {
  action?: string | null;
  devices?: string[];
  dry_run?: boolean;
  force?: boolean;
  group_size?: number | null;
  level?: string | null;
  rotate?: boolean;
  strip_bytes?: number | null;
}

export interface Retries {
  failed: number;
  got_through: number;
  resets: number;
  tries: number;
}

export interface ScanArray {
  destroyed: string | null;
  devices: ScanDevice[];
  found: number;
  level: string;
  members: number;
  members_found: number;
  moving: Moving | null;
  name: string;
  overwritten: ScanOverwritten[];
  reason: string | null;
  spares: number;
  spares_found: number;
  state: string;
  unread: ScanUnread[];
  uuid: string;
}

export interface ScanDevice {
  also: string[];
  device: string;
  epoch: number;
  held: string | null;
  problem: string | null;
  slot: number | null;
  state: string;
  uuid: string;
}

export interface ScanOverwritten {
  device: string;
  holds: string;
  slot: number;
}

export interface ScanUnread {
  device: string;
  problem: string;
  slot: number;
}

export interface Scrub {
  begun: string;
  ended: string;
  inconsistent_stripes: number;
  located_stripes: number;
  repair: boolean;
  repaired_stripes: number;
  unreadable_stripes: number;
}

export interface Scrubs {
  name: string;
  now: Job | null;
  past: Scrub[];
}

export interface SetAside {
  code: string;
  cure: string;
  device: string;
  found: string;
  slot: number | null;
}

export interface Settings {
  cpus?: string | null;
  degraded?: string | null;
  dry_run?: boolean;
  hedged_reads?: string | null;
  init_priority?: number | null;
  latency_target_us?: number | null;
  memory_limit_bytes?: number | null;
  pool?: string | null;
  read_error_threshold?: number | null;
  rebuild_priority?: number | null;
  replace_at_wear?: number | null;
  requests?: number | null;
  restripe_priority?: number | null;
  resync_priority?: number | null;
  scrub_at?: string | null;
  scrub_policy?: string | null;
  scrub_priority?: number | null;
  scrub_schedule?: string | null;
  shards?: number | null;
  spare_delay_ms?: number | null;
  write_hole?: string | null;
}

export interface SlotDevice {
  device: string;
  slot: number;
}

export interface StartRequest {
  by_rule?: boolean;
  devices?: string[];
  dry_run?: boolean;
  export?: string | null;
  force?: boolean;
}

export interface Stats {
  jobs: Job[];
  log_writes: number;
  log_written_bytes: number;
  members: MemberStats[];
  name: string;
  reads: IoStats;
  request_errors: number;
  served_ns: number;
  state: string;
  unreadable_ranges: number;
  unreadable_ranges_max: number;
  uuid: string;
  writes: IoStats;
}

export type Streamed = Event | Gap;

export interface Version {
  dir: string;
  pid: number;
  version: string;
}

export interface Volume {
  allocated_bytes: number;
  created: string;
  device: string | null;
  extents: number;
  name: string;
  not_served: string | null;
  size_bytes: number;
  uuid: string;
}

export interface VolumeChange {
  dry_run?: boolean;
  name?: string | null;
  shrink?: boolean;
  size_bytes?: number | null;
}

export interface VolumeCreated {
  allocated_bytes: number;
  carves: boolean;
  created: string;
  device: string | null;
  dry_run: boolean;
  extents: number;
  name: string;
  not_served: string | null;
  size_bytes: number;
  uuid: string;
}

export interface VolumeDeletion {
  dry_run?: boolean;
}

export interface VolumeRequest {
  dry_run?: boolean;
  force?: boolean;
  name: string;
  size_bytes?: number | null;
}

export interface Volumes {
  carved: boolean;
  volume_free_bytes: number | null;
  volume_table_damaged: boolean;
  volume_unit_bytes: number | null;
  volumes: Volume[];
}

export interface Was {
  cause: string | null;
  device: string;
  errno: number | null;
  holds?: string | null;
  model: string | null;
  serial: string | null;
  until: string | null;
}

export interface Wear {
  members: WearMember[];
  name: string;
}

export interface WearMember {
  available_spare_percent: number | null;
  device: string | null;
  host_written_bytes: number | null;
  host_written_bytes_since: number | null;
  media_errors: number | null;
  media_from: string | null;
  media_written_bytes: number | null;
  media_written_bytes_since: number | null;
  model: string | null;
  percentage_used: number | null;
  power_on_hours: number | null;
  reason: string | null;
  serial: string | null;
  since: string | null;
  slot: number | null;
  temperature_c: number | null;
  unaligned_ios: number | null;
  unsafe_shutdowns: number | null;
  warnings: string[];
  write_amplification: number | null;
  write_amplification_since: number | null;
}
