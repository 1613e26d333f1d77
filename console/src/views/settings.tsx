// The settings of an array. Only what was changed is sent.

import { useCallback, useEffect, useState } from "react";
import {
  Alert,
  Button,
  Form,
  FormGroup,
  FormHelperText,
  FormSelect,
  FormSelectOption,
  HelperText,
  HelperTextItem,
  Skeleton,
  TextInput,
} from "@patternfly/react-core";

import type { Array as ArrayInfo, Settings } from "../api";
import { arrayPath } from "../dialogs/array";
import { door, type ApiFailure } from "../door";
import { named, t, type Key } from "../i18n";
import { refresh, useLive } from "../live";
import { asFailure, Failure } from "../parts/failure";
import { say } from "../parts/said";

type Name = Exclude<keyof Settings, "dry_run">;

/** How a setting is typed: a number in a unit, one of some names, or a text. */
type Kind =
  | { unit: Key; scale: number; least: number; most?: number }
  | { names: string[] }
  | { text: string }
  | "pool";

const share: Kind = { unit: "unit.percent", scale: 1, least: 1, most: 100 };
const amount = (unit: Key, scale = 1, most?: number): Kind => ({ unit, scale, least: 0, most });

const KINDS: Record<Name, Kind> = {
  rebuild_priority: share,
  resync_priority: share,
  scrub_priority: share,
  restripe_priority: share,
  init_priority: share,
  latency_target_us: amount("unit.us"),
  spare_delay_ms: amount("unit.s", 1000),
  scrub_schedule: { names: ["off", "continuous", "daily", "weekly", "monthly"] },
  scrub_at: { text: "03:00" },
  scrub_policy: { names: ["report", "repair", "halt"] },
  read_error_threshold: { unit: "unit.errors", scale: 1, least: 1 },
  write_hole: { names: ["closed", "degraded", "resync"] },
  hedged_reads: { names: ["on", "off"] },
  replace_at_wear: amount("unit.percent", 1, 100),
  pool: "pool",
  degraded: { text: "default" },
  cpus: { text: "auto" },
  shards: amount("unit.threads", 1, 64),
  memory_limit_bytes: amount("unit.mib", 1 << 20),
  requests: amount("unit.requests"),
};

const NAMES = Object.keys(KINDS) as Name[];

/** A setting as it is typed. */
function typed(kind: Kind, value: Settings[Name]): string {
  if (typeof kind === "object" && "scale" in kind) return String(Number(value) / kind.scale);
  return String(value);
}

/** What is meant by what is typed; nothing where that is no number and one is wanted. */
function meant(kind: Kind, text: string): string | number | undefined {
  if (typeof kind !== "object" || !("scale" in kind)) return text.trim();
  const number = Number(text);
  return text.trim() === "" || !Number.isFinite(number)
    ? undefined
    : Math.round(number * kind.scale);
}

export function SettingsForm({ array }: { array: ArrayInfo }) {
  const { events, pools = [] } = useLive();
  const [settings, setSettings] = useState<Settings>();
  const [changed, setChanged] = useState<Partial<Record<Name, string>>>({});
  const [failure, setFailure] = useState<ApiFailure>();
  const [busy, setBusy] = useState(false);
  const path = `${arrayPath(array)}/settings`;
  const changes = events.filter(
    (event) => event.event === "settings_changed" && event.array === array.name,
  ).length;
  const read = useCallback(
    () => door.request<Settings>("GET", path).then(setSettings, (e) => setFailure(asFailure(e))),
    [path],
  );
  useEffect(() => void read(), [read, changes, array.state]);
  const differs = (name: Name) => {
    const text = changed[name];
    return text !== undefined && settings && text !== typed(KINDS[name], settings[name]);
  };
  const body = Object.fromEntries(
    NAMES.filter(differs).map((name) => [name, meant(KINDS[name], changed[name] ?? "")]),
  );
  const count = Object.keys(body).length;
  const ready = Object.values(body).every((value) => value !== undefined) && count > 0;
  const save = async () => {
    setBusy(true);
    setFailure(undefined);
    try {
      await door.request<Settings>("PATCH", path, body);
      say(t("settings.saved"));
      setChanged({});
      await read();
      refresh();
    } catch (error) {
      setFailure(asFailure(error));
    } finally {
      setBusy(false);
    }
  };
  if (!settings) {
    if (failure) return <Failure failure={failure} />;
    return <Skeleton screenreaderText={t("loading")} />;
  }
  return (
    <Form
      onSubmit={(event) => {
        event.preventDefault();
        if (ready) void save();
      }}
    >
      <div aria-live="polite">{failure && <Failure failure={failure} />}</div>
      <div className="columns">
        {NAMES.filter((name) => settings[name] !== undefined && settings[name] !== null).map(
          (name) => (
            <Setting
              key={name}
              name={name}
              pools={pools.map((pool) => pool.name)}
              value={changed[name] ?? typed(KINDS[name], settings[name])}
              onChange={(text) => setChanged({ ...changed, [name]: text })}
            />
          ),
        )}
      </div>
      {count > 0 && <Alert component="p" variant="info" isInline isPlain title={t("settings.unsaved")} />}
      <div className="row">
        <Button type="submit" isDisabled={!ready || busy} isLoading={busy}>
          {t("settings.save")}
        </Button>
        <Button variant="link" isDisabled={count === 0} onClick={() => setChanged({})}>
          {t("settings.undo")}
        </Button>
      </div>
    </Form>
  );
}

function Setting(props: {
  name: Name;
  value: string;
  pools: string[];
  onChange: (text: string) => void;
}) {
  const { name, value, pools, onChange } = props;
  const kind = KINDS[name];
  const id = `setting-${name}`;
  const unit = typeof kind === "object" && "unit" in kind ? ` (${t(kind.unit)})` : "";
  let names = typeof kind === "object" && "names" in kind ? kind.names : undefined;
  if (kind === "pool") names = ["none", ...pools];
  // What was set before stays in the list.
  if (names && !names.includes(value)) names = [...names, value];
  return (
    <FormGroup label={named("setting", name) + unit} fieldId={id}>
      {names ? (
        <FormSelect
          id={id}
          value={value}
          aria-describedby={`${id}-help`}
          onChange={(_, text) => onChange(text)}
        >
          {names.map((one) => (
            <FormSelectOption key={one} value={one} label={named("value", one)} />
          ))}
        </FormSelect>
      ) : (
        <TextInput
          id={id}
          value={value}
          autoComplete="off"
          aria-describedby={`${id}-help`}
          {...(typeof kind === "object" &&
            "scale" in kind && {
              validated: meant(kind, value) === undefined ? ("error" as const) : ("default" as const),
              type: "number" as const,
              min: kind.least,
              max: kind.most,
              step: "any",
            })}
          onChange={(_, text) => onChange(text)}
        />
      )}
      <FormHelperText>
        <HelperText>
          <HelperTextItem id={`${id}-help`}>{named("setting.more", name)}</HelperTextItem>
        </HelperText>
      </FormHelperText>
    </FormGroup>
  );
}
