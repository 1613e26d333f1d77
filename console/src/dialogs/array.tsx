// What can be done to an array as a whole.

import { useState } from "react";
import { Checkbox, FormGroup, TextInput } from "@patternfly/react-core";

import type { Array as ArrayInfo } from "../api";
import { t } from "../i18n";
import { Act } from "../parts/act";
import { arrayLink } from "../views/overview";

export type ArrayAct = "start" | "stop" | "scrub" | "rename" | "grow" | "destroy" | "forget" | "init";

/** By its uuid: two arrays may have one name, and a name may be given to another array. */
export const arrayPath = (array: ArrayInfo): string => `v1/arrays/${array.uuid}`;

export function ArrayDialog(props: { act: ArrayAct; array: ArrayInfo; onClose: () => void }) {
  switch (props.act) {
    case "start":
      return <Start {...props} />;
    case "scrub":
      return <Scrub {...props} />;
    case "rename":
      return <Rename {...props} />;
    case "destroy":
      return <Destroy {...props} />;
    default:
      return <Simple {...props} act={props.act} />;
  }
}

interface Props {
  array: ArrayInfo;
  onClose: () => void;
}

/** What needs nothing but a yes. */
function Simple({ act, array, onClose }: Props & { act: "stop" | "grow" | "forget" | "init" }) {
  const body = act === "init" ? { action: "start" } : {};
  return (
    <Act
      title={t(`${act}.title`, { name: array.name })}
      about={t(`${act}.about`)}
      request={{ method: "POST", path: `${arrayPath(array)}/${act}`, body }}
      submit={t(`${act}.button`)}
      danger={act === "stop"}
      onDone={() => {
        if (act === "forget") location.hash = "#/";
      }}
      onClose={onClose}
    />
  );
}

function Start({ array, onClose }: Props) {
  const [force, setForce] = useState(false);
  return (
    <Act
      title={t("start.title", { name: array.name })}
      about={t("start.about")}
      request={{
        method: "POST",
        path: `${arrayPath(array)}/start`,
        body: force ? { force } : {},
      }}
      submit={t("start.button")}
      done={t("start.done", { name: array.name })}
      danger={force}
      typed={force ? array.name : undefined}
      onClose={onClose}
    >
      <Checkbox
        id="start-force"
        label={t("start.force")}
        description={t("start.force.more")}
        isChecked={force}
        onChange={(_, on) => setForce(on)}
      />
    </Act>
  );
}

function Scrub({ array, onClose }: Props) {
  const [repair, setRepair] = useState(false);
  const [halt, setHalt] = useState(false);
  return (
    <Act
      title={t("scrub.title", { name: array.name })}
      about={t("scrub.about")}
      request={{
        method: "POST",
        path: `${arrayPath(array)}/scrub`,
        body: { action: "start", repair, halt },
      }}
      submit={t("scrub.button")}
      onClose={onClose}
    >
      <Checkbox
        id="scrub-repair"
        label={t("scrub.repair")}
        description={t("scrub.repair.more")}
        isChecked={repair}
        onChange={(_, on) => setRepair(on)}
      />
      <Checkbox
        id="scrub-halt"
        label={t("scrub.halt")}
        description={t("scrub.halt.more")}
        isChecked={halt}
        onChange={(_, on) => setHalt(on)}
      />
    </Act>
  );
}

function Rename({ array, onClose }: Props) {
  const [name, setName] = useState(array.name);
  const changed = name !== "" && name !== array.name;
  return (
    <Act
      title={t("rename.title", { name: array.name })}
      about={t("rename.about")}
      request={{
        method: "POST",
        path: `${arrayPath(array)}/rename`,
        body: changed ? { name } : undefined,
      }}
      submit={t("rename.button")}
      onDone={() => {
        location.hash = arrayLink(array);
      }}
      onClose={onClose}
    >
      <FormGroup label={t("array.name")} fieldId="new-name" isRequired>
        <TextInput
          id="new-name"
          value={name}
          autoComplete="off"
          onChange={(_, value) => setName(value)}
        />
      </FormGroup>
    </Act>
  );
}

function Destroy({ array, onClose }: Props) {
  return (
    <Act
      title={t("destroy.title", { name: array.name })}
      about={t("destroy.about")}
      request={{ method: "DELETE", path: arrayPath(array), body: {} }}
      submit={t("destroy.button")}
      danger
      typed={array.name}
      onDone={() => {
        location.hash = "#/";
      }}
      onClose={onClose}
    />
  );
}
