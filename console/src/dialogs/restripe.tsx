// Another shape, guided: what is wanted, what it takes, what becomes of it.

import { useState } from "react";
import { FormGroup, FormSelect, FormSelectOption, Radio, TextInput } from "@patternfly/react-core";

import type { Array as ArrayInfo } from "../api";
import { bytes } from "../format";
import { t } from "../i18n";
import { Act } from "../parts/act";
import { DrivePick } from "../parts/drivepick";
import { arrayPath } from "./array";

const WAYS = ["level", "add", "strip", "rotate"] as const;
type Way = (typeof WAYS)[number];

export const STRIPS = Array.from({ length: 9 }, (_, at) => 4096 << at);

export function Restripe({ array, onClose }: { array: ArrayInfo; onClose: () => void }) {
  const [way, setWay] = useState<Way>("level");
  const [level, setLevel] = useState("");
  const [groups, setGroups] = useState("");
  const [devices, setDevices] = useState<string[]>([]);
  const [strip, setStrip] = useState(0);
  const size = Number(groups);
  const hasGroups = /^[567]0$/.test(level);
  const stripped = strip > 0 ? { strip_bytes: strip } : {};
  // What was chosen where it is not shown any more is not sent.
  const grouped = hasGroups && size > 0 ? { group_size: size } : {};
  const body = {
    level: level ? { level, devices, ...grouped } : undefined,
    add: devices.length > 0 ? { action: "add", devices, ...stripped } : undefined,
    strip: strip > 0 ? stripped : undefined,
    rotate: { rotate: true },
  }[way];
  return (
    <Act
      title={t("restripe.title", { name: array.name })}
      about={t("restripe.about", { level: array.level, strip: bytes(array.strip_bytes) })}
      request={{ method: "POST", path: `${arrayPath(array)}/restripe`, body }}
      submit={t("restripe.button")}
      // There is no way back from most.
      danger={way === "add"}
      typed={way === "add" ? array.name : undefined}
      onClose={onClose}
    >
      <FormGroup role="radiogroup" label={t("restripe.what")} fieldId="restripe-way" isStack>
        {WAYS.filter((one) => one !== "rotate" || array.fixed_parities > 0).map((one) => (
          <Radio
            key={one}
            id={`restripe-${one}`}
            name="restripe"
            label={t(`restripe.${one}`)}
            description={t(`restripe.${one}.more`)}
            isChecked={way === one}
            onChange={() => {
              setWay(one);
              // Drives for one way are not those for another.
              setDevices([]);
              setStrip(0);
            }}
          />
        ))}
      </FormGroup>
      {way === "level" && (
        <FormGroup label={t("array.level")} fieldId="restripe-to">
          <TextInput
            id="restripe-to"
            value={level}
            placeholder="6"
            autoComplete="off"
            aria-describedby="restripe-to-help"
            onChange={(_, value) => setLevel(value.trim())}
          />
          <p id="restripe-to-help" className="quiet">
            {t("restripe.levels")}
          </p>
        </FormGroup>
      )}
      {way === "level" && hasGroups && (
        <FormGroup label={t("create.group")} fieldId="restripe-group">
          <TextInput
            id="restripe-group"
            type="number"
            value={groups}
            onChange={(_, value) => setGroups(value)}
          />
        </FormGroup>
      )}
      {(way === "strip" || way === "add") && (
        <StripSelect id="restripe-size" value={strip} onChange={setStrip} none={way === "add"} />
      )}
      {(way === "level" || way === "add") && (
        <DrivePick
          legend={t(way === "add" ? "restripe.add.drives" : "restripe.level.drives")}
          chosen={devices}
          onChange={setDevices}
          many
        />
      )}
    </Act>
  );
}

export function StripSelect(props: {
  id: string;
  value: number;
  onChange: (bytes: number) => void;
  /** It may stay as it is. */
  none: boolean;
}) {
  const { id, value, onChange, none } = props;
  return (
    <FormGroup label={t("array.strip")} fieldId={id}>
      <FormSelect id={id} value={value} onChange={(_, text) => onChange(Number(text))}>
        <FormSelectOption value={0} label={t(none ? "strip.default" : "strip.choose")} />
        {STRIPS.map((size) => (
          <FormSelectOption key={size} value={size} label={bytes(size)} />
        ))}
      </FormSelect>
    </FormGroup>
  );
}
