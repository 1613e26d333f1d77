// What can be done to members and spares.

import { useState } from "react";
import { Checkbox } from "@patternfly/react-core";

import type { Array as ArrayInfo, Member } from "../api";
import { slotName } from "../format";
import { t } from "../i18n";
import { Act } from "../parts/act";
import { DrivePick } from "../parts/drivepick";
import { arrayPath } from "./array";

export type MemberAct = "replace" | "fail" | "remove" | "light.on" | "light.off" | "reset";

interface Props {
  array: ArrayInfo;
  onClose: () => void;
}

/**
 * How the API calls a member: by its device, since a slot that is being replaced has two members;
 * by its slot where it has no device.
 */
const memberName = (member: Member): string => member.device ?? String(member.slot);

/** What changed of a member since it was chosen. */
function moved(array: ArrayInfo, chosen: Member): string | undefined {
  const all = [...array.members, ...array.spares];
  const same = all.some(
    (one) =>
      one.uuid === chosen.uuid && one.slot === chosen.slot && one.device === chosen.device,
  );
  const { slot, device } = chosen;
  return same ? undefined : t("member.moved", { slot: slotName(slot), device: device ?? "–" });
}

export function MemberDialog(props: Props & { act: MemberAct; member: Member }) {
  const { act, array, member, onClose } = props;
  const who = `${slotName(member.slot)}${member.device ? `, ${member.device}` : ""}`;
  const name = memberName(member);
  if (act === "replace") return <Replace {...props} />;
  const light = act === "light.on" || act === "light.off";
  const path = `${arrayPath(array)}/${light ? "locate" : act}`;
  const body = { member: name, ...(light && { on: act === "light.on" }) };
  return (
    <Act
      title={`${t(`${act}.title`)}: ${who}`}
      about={t(`${act}.about`)}
      request={{ method: "POST", path, body }}
      submit={t(`${act}.button`)}
      danger={act === "fail" || act === "remove"}
      typed={act === "fail" ? array.name : undefined}
      stale={moved(array, member)}
      onClose={onClose}
    />
  );
}

const A_SPARE = "a-spare";

function ForceBox({ force, setForce }: { force: boolean; setForce: (on: boolean) => void }) {
  return (
    <Checkbox
      id="take-force"
      label={t("force")}
      description={t("force.more")}
      isChecked={force}
      onChange={(_, on) => setForce(on)}
    />
  );
}

function Replace({ array, member, onClose }: Props & { member: Member }) {
  const [chosen, setChosen] = useState<string[]>(array.spares.length > 0 ? [A_SPARE] : []);
  const [force, setForce] = useState(false);
  const [device] = chosen;
  const body = device && {
    member: memberName(member),
    ...(device !== A_SPARE && { device, force }),
  };
  const isForced = force && device !== A_SPARE;
  return (
    <Act
      title={t("replace.title", { slot: member.slot ?? "", name: array.name })}
      about={t("replace.about")}
      request={{ method: "POST", path: `${arrayPath(array)}/replace`, body: body || undefined }}
      submit={t("replace.button")}
      danger={isForced}
      typed={isForced ? device : undefined}
      stale={moved(array, member)}
      onClose={onClose}
    >
      <DrivePick
        legend={t("replace.by")}
        chosen={chosen}
        onChange={setChosen}
        extra={
          array.spares.length > 0 ? { value: A_SPARE, label: t("replace.spare") } : undefined
        }
      />
      <ForceBox force={force} setForce={setForce} />
    </Act>
  );
}

/** A spare, or a member that comes back. */
export function AddSpare({ array, onClose }: Props) {
  const [chosen, setChosen] = useState<string[]>([]);
  const [force, setForce] = useState(false);
  const [device] = chosen;
  return (
    <Act
      title={t("add.title", { name: array.name })}
      about={t("add.about")}
      request={{
        method: "POST",
        path: `${arrayPath(array)}/add`,
        body: device ? { device, force } : undefined,
      }}
      submit={t("add.button")}
      danger={force}
      typed={force ? device : undefined}
      onClose={onClose}
    >
      <DrivePick
        legend={t("add.drive")}
        chosen={chosen}
        onChange={setChosen}
        uses={(drive) => drive.use === "free" || isOwn(drive, array)}
      />
      <ForceBox force={force} setForce={setForce} />
    </Act>
  );
}

/** A member of this array that is out: it may come back. */
function isOwn(drive: { device: string; use: string }, array: ArrayInfo): boolean {
  const was = array.members.some((member) => member.was?.device === drive.device);
  return drive.use === "other" && was;
}
