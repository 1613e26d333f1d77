// Choosing drives: those that are free in a list, others by their path.

import { useState } from "react";
import {
  Button,
  Checkbox,
  ExpandableSection,
  FormGroup,
  InputGroup,
  InputGroupItem,
  Radio,
  Skeleton,
  TextInput,
} from "@patternfly/react-core";

import type { Drive } from "../api";
import { bytes } from "../format";
import { named, plural, t } from "../i18n";
import { useDrives } from "../live";

export function driveText(drive: Drive): string {
  const size = drive.size_bytes === null ? undefined : bytes(drive.size_bytes);
  return [size, drive.model, drive.serial].filter(Boolean).join(" · ");
}

/** What a drive is used for. */
export function driveUse(drive: Drive): string {
  const place = { array: drive.array ?? "", pool: drive.pool ?? "", slot: drive.slot ?? "" };
  switch (drive.use) {
    case "member":
      return t("use.member", place);
    case "spare":
      return t("use.spare", place);
    case "pool":
      return t("use.pool", place);
    default:
      return named("use", drive.use);
  }
}

export function PathInput({ onAdd }: { onAdd: (path: string) => void }) {
  const [path, setPath] = useState("");
  const add = () => {
    const trimmed = path.trim();
    if (trimmed.startsWith("/")) {
      onAdd(trimmed);
      setPath("");
    }
  };
  return (
    <FormGroup label={t("drives.path")} fieldId="drive-path">
      <InputGroup>
        <InputGroupItem isFill>
          <TextInput
            id="drive-path"
            value={path}
            placeholder="/dev/nvme0n1"
            autoComplete="off"
            onChange={(_, value) => setPath(value)}
            onKeyDown={(event) => {
              if (event.key === "Enter") {
                event.preventDefault();
                add();
              }
            }}
          />
        </InputGroupItem>
        <InputGroupItem>
          <Button variant="control" isDisabled={!path.trim().startsWith("/")} onClick={add}>
            {t("drives.path.add")}
          </Button>
        </InputGroupItem>
      </InputGroup>
    </FormGroup>
  );
}

/** Drives that cannot be taken, with what stands against each. */
export function OtherDrives({ drives }: { drives: Drive[] }) {
  const [open, setOpen] = useState(false);
  if (drives.length === 0) return null;
  return (
    <ExpandableSection
      toggleText={plural("drives.others", drives.length)}
      isExpanded={open}
      onToggle={(_, value) => setOpen(value)}
    >
      <ul>
        {drives.map((drive) => (
          <li key={drive.device}>
            <span className="path">{drive.device}</span>{" "}
            <span className="quiet">{driveText(drive)}</span>{" "}
            {drive.problem ? (
              <span lang="en">
                {drive.problem.found}; {drive.problem.cure}
              </span>
            ) : (
              driveUse(drive)
            )}
          </li>
        ))}
      </ul>
    </ExpandableSection>
  );
}

/** One drive, or any number of them. */
export function DrivePick(props: {
  legend: string;
  chosen: string[];
  onChange: (chosen: string[]) => void;
  many?: boolean;
  /** What may stand in the list beside free drives. */
  extra?: { value: string; label: string };
  /** Drives of these uses too. */
  uses?: (drive: Drive) => boolean;
}) {
  const { legend, chosen, onChange, many, extra, uses } = props;
  const drives = useDrives();
  const [typed, setTyped] = useState<string[]>([]);
  const may = uses ?? ((drive: Drive) => drive.use === "free");
  const listed = drives?.filter(may) ?? [];
  const others = drives?.filter((drive) => !may(drive) && drive.use === "other") ?? [];
  const options: { value: string; label: string; text?: string }[] = [
    ...(extra ? [extra] : []),
    ...listed.map((drive) => ({
      value: drive.device,
      label: drive.device,
      text: driveText(drive),
    })),
    ...typed
      .filter((path) => !listed.some((drive) => drive.device === path))
      .map((path) => ({ value: path, label: path })),
  ];
  const choose = (value: string, on: boolean) => {
    if (!many) return onChange([value]);
    onChange(on ? [...chosen, value] : chosen.filter((one) => one !== value));
  };
  return (
    <>
      <FormGroup role="group" label={legend} fieldId="drive-list" isStack>
        {!drives && <Skeleton screenreaderText={t("loading")} />}
        {drives && options.length === 0 && <p className="quiet">{t("drives.none")}</p>}
        {options.map((option) => {
          const shared = {
            id: `drive-${option.value}`,
            label: option.label,
            description: option.text,
            isChecked: chosen.includes(option.value),
            onChange: (_: unknown, on: boolean) => choose(option.value, on),
          };
          return many ? (
            <Checkbox key={option.value} {...shared} />
          ) : (
            <Radio key={option.value} name="drive" {...shared} />
          );
        })}
      </FormGroup>
      <PathInput
        onAdd={(path) => {
          setTyped([...typed, path]);
          choose(path, true);
        }}
      />
      <OtherDrives drives={others} />
    </>
  );
}
