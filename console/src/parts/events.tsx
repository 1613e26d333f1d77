// A table of events, the newest first.

import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";

import type { Event as DaemonEvent } from "../api";
import { moment, slotName } from "../format";
import { named, t } from "../i18n";
import { Severity } from "./labels";

const JOBS = new Set(["rebuild", "resync", "scrub", "restripe", "init", "accept"]);

/** Where: the array, the slot, the device. */
function place(event: DaemonEvent): string {
  const parts = [event.array, event.slot === null ? null : slotName(event.slot), event.device];
  return parts.filter(Boolean).join(" · ");
}

/** Cause and effect, as the daemon says them. */
function why(event: DaemonEvent): string {
  const effect = event.effect && JOBS.has(event.effect) ? named("job", event.effect) : event.effect;
  return [event.cause, effect].filter(Boolean).join(" → ");
}

export function Events({ events, label }: { events: DaemonEvent[]; label: string }) {
  if (events.length === 0) return <p className="quiet">{t("events.none")}</p>;
  return (
    <Table aria-label={label} variant="compact" gridBreakPoint="grid-lg">
      <Thead>
        <Tr>
          <Th>{t("events.time")}</Th>
          <Th>{t("events.severity")}</Th>
          <Th>{t("events.what")}</Th>
          <Th>{t("events.where")}</Th>
          <Th>{t("events.why")}</Th>
        </Tr>
      </Thead>
      <Tbody>
        {[...events].reverse().map((event) => (
          <Tr key={event.sequence}>
            <Td dataLabel={t("events.time")} className="numbers">
              {moment(event.time)}
            </Td>
            <Td dataLabel={t("events.severity")}>
              <Severity severity={event.severity} />
            </Td>
            <Td dataLabel={t("events.what")}>{named("event", event.event)}</Td>
            <Td dataLabel={t("events.where")} className="path">
              {place(event)}
            </Td>
            <Td dataLabel={t("events.why")} lang="en">
              {why(event)}
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}
