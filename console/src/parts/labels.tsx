// States as coloured labels; the colour never says what the text does not.

import { Label } from "@patternfly/react-core";

import type { Array as ArrayInfo, Member } from "../api";
import { named } from "../i18n";

type Status = "success" | "warning" | "danger" | "info" | undefined;

const ARRAY: Record<string, Status> = {
  optimal: "success",
  degraded: "warning",
  failed: "danger",
  incomplete: "danger",
  not_found: "danger",
  unresponsive: "danger",
};

const MEMBER: Record<string, Status> = {
  in_sync: "success",
  rebuilding: "info",
  spare: undefined,
  stale: "warning",
  missing: "danger",
  failed: "danger",
};

const SEVERITY: Record<string, Status> = { info: "info", warning: "warning", critical: "danger" };

function StatusLabel({ status, text }: { status: Status; text: string }) {
  return status ? (
    <Label status={status} variant="outline">
      {text}
    </Label>
  ) : (
    <Label color="grey" variant="outline">
      {text}
    </Label>
  );
}

/**
 * The state of an array, where a stopped one that cannot start is told from one that is meant to be
 * stopped.
 */
export function condition(array: ArrayInfo): string {
  if (array.not_found) return "not_found";
  if (array.destroyed) return "destroyed";
  return array.state === "stopped" && array.startable === false ? "incomplete" : array.state;
}

export function ArrayState({ state }: { state: string }) {
  return <StatusLabel status={ARRAY[state]} text={named("state", state)} />;
}

export function MemberState({ state }: { state: string }) {
  return <StatusLabel status={MEMBER[state]} text={named("member.state", state)} />;
}

export function Severity({ severity }: { severity: string }) {
  return <StatusLabel status={SEVERITY[severity]} text={named("severity", severity)} />;
}

/** The class of a slot's tile. */
export function bayClass(member: Member): string {
  if (member.doubted || member.full_since) return "bay bad";
  if (member.state === "in_sync") {
    const troubled = member.slow || member.read_errors + member.write_errors > 0;
    return troubled ? "bay poor" : "bay good";
  }
  return { rebuilding: "bay busy", stale: "bay poor", spare: "bay" }[member.state] ?? "bay bad";
}

/** Slots of an array: one that is being replaced has two members. */
export const slots = (array: ArrayInfo): number =>
  new Set(array.members.map((member) => member.slot)).size;

/** Slots of an array that are whole. */
export const inSync = (array: ArrayInfo): number =>
  slots({ ...array, members: array.members.filter((member) => member.state === "in_sync") });
