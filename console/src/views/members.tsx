// The members of an array in their slots, and its spares.

import { useEffect, useState } from "react";
import { Dropdown, DropdownItem, DropdownList, MenuToggle } from "@patternfly/react-core";
import EllipsisVIcon from "@patternfly/react-icons/dist/esm/icons/ellipsis-v-icon";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";

import type { Array as ArrayInfo, Member, Wear, WearMember } from "../api";
import { MemberDialog, type MemberAct } from "../dialogs/member";
import { door } from "../door";
import { duration, micros, moment, rate, slotName } from "../format";
import { named, plural, t, type Key } from "../i18n";
import { useLive } from "../live";
import { bayClass, MemberState } from "../parts/labels";
import type { Rates } from "../rates";

/** Drives tell no event when they become warmer. */
const WEAR_MS = 60_000;

/** How the drives wear, read once a minute while it is looked at. */
function useWear(array: ArrayInfo): WearMember[] {
  const [wear, setWear] = useState<WearMember[]>([]);
  const { uuid, epoch } = array;
  useEffect(() => {
    let over = false;
    const read = async () => {
      if (document.visibilityState !== "visible") return;
      const path = `v1/arrays/${uuid}/wear`;
      // What drives do not tell is no failure of the page: the columns stay empty.
      const answer = await door.request<Wear>("GET", path).catch(() => undefined);
      if (answer && !over) setWear(answer.members);
    };
    void read();
    const timer = window.setInterval(() => void read(), WEAR_MS);
    return () => {
      over = true;
      window.clearInterval(timer);
    };
  }, [uuid, epoch]);
  return wear;
}

function acts(array: ArrayInfo, member: Member): MemberAct[] {
  const light: MemberAct[] = member.device ? ["light.on", "light.off"] : [];
  if (member.slot === null) return [...light, "remove"];
  if (array.state === "stopped") return light;
  const out = ["missing", "failed", "stale"].includes(member.state);
  return ["replace", ...(out ? (["remove"] as const) : (["fail"] as const)), ...light, "reset"];
}

const key = (member: Member): string => member.uuid ?? `${member.slot}-${member.device}`;

export function Members({ array }: { array: ArrayInfo }) {
  const wear = useWear(array);
  const samples = useLive().samples.get(array.uuid);
  const [act, setAct] = useState<{ act: MemberAct; member: Member }>();
  const all = [...array.members, ...array.spares];
  const wearOf = (member: Member) =>
    wear.find((one) => one.device !== null && one.device === member.device);
  const ratesOf = (member: Member) =>
    member.slot === null ? undefined : samples?.at(-1)?.members.get(member.slot);
  return (
    <>
      <ul className="bays" aria-label={t("array.slots")}>
        {array.members.map((member) => (
          <li key={key(member)} className={bayClass(member)}>
            <div>{slotName(member.slot)}</div>
            <div className="quiet">{named("member.state", member.state)}</div>
          </li>
        ))}
      </ul>
      <Table aria-label={t("array.members")} variant="compact" gridBreakPoint="grid-xl">
        <Thead>
          <Tr>
            <Th>{t("member.place")}</Th>
            <Th>{t("drives.device")}</Th>
            <Th>{t("array.state")}</Th>
            <Th>{t("member.health")}</Th>
            <Th>{t("member.wear")}</Th>
            <Th>{t("member.temperature")}</Th>
            <Th>{t("array.rates")}</Th>
            <Th>{t("array.latency")}</Th>
            <Th screenReaderText={t("actions")} />
          </Tr>
        </Thead>
        <Tbody>
          {all.map((member) => (
            <MemberRow
              key={key(member)}
              member={member}
              wear={wearOf(member)}
              rates={ratesOf(member)}
              acts={acts(array, member)}
              onAct={(one) => setAct({ act: one, member })}
            />
          ))}
        </Tbody>
      </Table>
      {act && <MemberDialog {...act} array={array} onClose={() => setAct(undefined)} />}
    </>
  );
}

/** What is not up to date, or out, is not called good, whatever its drive says. */
const isWell = (member: Member): boolean =>
  member.device !== null && ["in_sync", "spare", "rebuilding"].includes(member.state);

/** What is to be known of a member that is not as it should be. */
function health(member: Member, wear: WearMember | undefined): string[] {
  const counted: [string, number][] = [
    ["member.read_errors", member.read_errors],
    ["member.write_errors", member.write_errors],
    ["member.mismatches", member.mismatches],
    ["member.media_errors", wear?.media_errors ?? 0],
  ];
  return [
    ...counted.filter(([, n]) => n > 0).map(([name, n]) => plural(name, n)),
    ...(member.doubted ? [t("member.doubted")] : []),
    ...(member.full_since ? [t("member.full")] : []),
    ...(member.slow ? [t("member.slow")] : []),
    ...(wear?.warnings ?? []),
  ];
}

/** A value of reads above one of writes. */
function both(read: string, write: string) {
  return (
    <>
      <div>{t("rates.read", { value: read })}</div>
      <div>{t("rates.write", { value: write })}</div>
    </>
  );
}

function MemberRow(props: {
  member: Member;
  wear: WearMember | undefined;
  rates: Rates | undefined;
  acts: MemberAct[];
  onAct: (act: MemberAct) => void;
}) {
  const { member, wear, rates, acts: possible, onAct } = props;
  const [open, setOpen] = useState(false);
  const troubles = health(member, wear);
  const drive = [wear?.model ?? member.was?.model, wear?.serial ?? member.was?.serial];
  const p99 = [rates?.read.p99Us, rates?.write.p99Us].map((us) =>
    us === undefined ? "–" : micros(us),
  );
  return (
    <Tr>
      <Td dataLabel={t("member.place")} className="numbers">
        {slotName(member.slot)}
      </Td>
      <Td dataLabel={t("drives.device")}>
        <span className="path">{member.device ?? "–"}</span>
        <div className="quiet">{drive.filter(Boolean).join(" · ")}</div>
        {!member.device && member.was && (
          <div className="quiet">
            {t("member.was", { device: member.was.device })}{" "}
            {member.was.until && moment(member.was.until)}{" "}
            <span lang="en">{member.was.cause}</span>
          </div>
        )}
      </Td>
      <Td dataLabel={t("array.state")}>
        <MemberState state={member.state} />
        {member.spare_in_s !== null && (
          <div className="quiet">{t("member.soon", { time: duration(member.spare_in_s) })}</div>
        )}
      </Td>
      <Td dataLabel={t("member.health")}>
        {troubles.length === 0
          ? t(isWell(member) ? "member.well" : "member.unknown")
          : troubles.map((one) => <div key={one}>{one}</div>)}
      </Td>
      <Td dataLabel={t("member.wear")} className="numbers">
        {wear && wear.percentage_used !== null ? `${wear.percentage_used} %` : "–"}
      </Td>
      <Td dataLabel={t("member.temperature")} className="numbers">
        {wear && wear.temperature_c !== null ? `${wear.temperature_c} °C` : "–"}
      </Td>
      <Td dataLabel={t("array.rates")} className="numbers">
        {rates
          ? both(rate(rates.read.bytesPerSecond), rate(rates.write.bytesPerSecond))
          : "–"}
      </Td>
      <Td dataLabel={t("array.latency")} className="numbers">
        {rates ? both(p99[0] ?? "", p99[1] ?? "") : "–"}
      </Td>
      <Td isActionCell>
        <Dropdown
          isOpen={open}
          onOpenChange={setOpen}
          onSelect={() => setOpen(false)}
          popperProps={{ position: "end" }}
          toggle={(ref) => (
            <MenuToggle
              ref={ref}
              variant="plain"
              icon={<EllipsisVIcon />}
              isExpanded={open}
              aria-label={`${t("actions")}: ${slotName(member.slot)}`}
              onClick={() => setOpen(!open)}
            />
          )}
        >
          <DropdownList>
            {possible.map((one) => (
              <DropdownItem
                key={one}
                isDanger={one === "fail" || one === "remove"}
                onClick={() => onAct(one)}
              >
                {t(`${one}.open` as Key)}
              </DropdownItem>
            ))}
          </DropdownList>
        </Dropdown>
      </Td>
    </Tr>
  );
}
