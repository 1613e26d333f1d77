// A new array in three steps: drives, shape, look and make.
//
// What each shape would give is asked of the daemon (a dry run for each), so capacity and refusals
// are the daemon's own. Nothing is written before the last step.

import { useEffect, useState } from "react";
import {
  Alert,
  Breadcrumb,
  BreadcrumbItem,
  Button,
  Checkbox,
  Content,
  DescriptionList,
  DescriptionListDescription,
  DescriptionListGroup,
  DescriptionListTerm,
  ExpandableSection,
  FormGroup,
  FormSelect,
  FormSelectOption,
  Skeleton,
  TextInput,
  Wizard,
  WizardFooterWrapper,
  WizardStep,
  useWizardContext,
} from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";

import type { CreateRequest, Created, Drive } from "../api";
import { StripSelect } from "../dialogs/restripe";
import { door, type ApiFailure } from "../door";
import { bytes } from "../format";
import { named, plural, t } from "../i18n";
import { refresh, useDrives, useLive } from "../live";
import { usePlan } from "../parts/act";
import { driveText, OtherDrives, PathInput } from "../parts/drivepick";
import { asFailure, Failure } from "../parts/failure";
import { say } from "../parts/said";
import { shape, tolerance } from "../shape";
import { arrayLink } from "./overview";

const LEVELS = ["6", "5", "7.3", "10", "1", "60", "50", "70", "0"];

interface Draft {
  name: string;
  members: string[];
  spares: string[];
  level: string;
  strip: number;
  group: string;
  init: string;
  write_hole: string;
  export: string;
  pool: string;
  force: boolean;
}

const BLANK: Draft = {
  name: "",
  members: [],
  spares: [],
  level: "6",
  strip: 0,
  group: "",
  init: "auto",
  write_hole: "closed",
  export: "auto",
  pool: "",
  force: false,
};

function requestOf(draft: Draft, level = draft.level): CreateRequest {
  return {
    name: draft.name,
    level,
    devices: draft.members,
    spares: draft.spares,
    init: draft.init,
    write_hole: draft.write_hole,
    export: draft.export,
    force: draft.force,
    ...(draft.strip > 0 && { strip_bytes: draft.strip }),
    ...(Number(draft.group) > 0 && level === draft.level && { group_size: Number(draft.group) }),
    ...(draft.pool && { pool: draft.pool }),
  };
}

type Change = (change: Partial<Draft>) => void;

/** PatternFly calls the button that shows the steps "Wizard toggle", though it has a text. */
function nameToggle(wizard: HTMLElement | null): void {
  wizard?.querySelector(".pf-v6-c-wizard__toggle")?.removeAttribute("aria-label");
}

export function CreateView() {
  const [draft, setDraft] = useState(BLANK);
  const change: Change = (some) => setDraft((old) => ({ ...old, ...some }));
  const chosen = draft.name !== "" && draft.members.length > 0;
  return (
    <>
      <Breadcrumb aria-label={t("nav.place")}>
        <BreadcrumbItem to="#/">{t("nav.overview")}</BreadcrumbItem>
        <BreadcrumbItem isActive>{t("create.title")}</BreadcrumbItem>
      </Breadcrumb>
      <Content component="h1">{t("create.title")}</Content>
      <div ref={nameToggle}>
        <Wizard
          navAriaLabel={t("create.steps")}
          onClose={() => {
            location.hash = "#/";
          }}
          isVisitRequired
        >
          <WizardStep
            id="drives"
            name={t("create.drives")}
            footer={{
              isNextDisabled: !chosen,
              nextButtonText: t("next"),
              cancelButtonText: t("cancel"),
              isBackHidden: true,
            }}
          >
            <DrivesStep draft={draft} change={change} />
          </WizardStep>
          <WizardStep
            id="shape"
            name={t("create.shape")}
            isDisabled={!chosen}
            footer={{
              nextButtonText: t("next"),
              backButtonText: t("back"),
              cancelButtonText: t("cancel"),
            }}
          >
            <ShapeStep draft={draft} change={change} />
          </WizardStep>
          <WizardStep
            id="make"
            name={t("create.look")}
            isDisabled={!chosen}
            footer={<span />}
          >
            <LookStep draft={draft} change={change} />
          </WizardStep>
        </Wizard>
      </div>
    </>
  );
}

function DrivesStep({ draft, change }: { draft: Draft; change: Change }) {
  const drives = useDrives();
  const [typed, setTyped] = useState<string[]>([]);
  const free = drives?.filter((drive) => drive.use === "free") ?? [];
  const others = drives?.filter((drive) => drive.use === "other") ?? [];
  const rows: { device: string; drive?: Drive }[] = [
    ...free.map((drive) => ({ device: drive.device, drive })),
    ...typed
      .filter((path) => !free.some((drive) => drive.device === path))
      .map((device) => ({ device })),
  ];
  const set = (role: "members" | "spares", device: string, on: boolean) => {
    const without = (list: string[]) => list.filter((one) => one !== device);
    const lists = { members: without(draft.members), spares: without(draft.spares) };
    if (on) lists[role].push(device);
    change(lists);
  };
  return (
    <div className="stack">
      <FormGroup label={t("array.name")} fieldId="array-name" isRequired>
        <TextInput
          id="array-name"
          value={draft.name}
          autoComplete="off"
          aria-describedby="array-name-help"
          onChange={(_, name) => change({ name: name.trim() })}
        />
        <p id="array-name-help" className="quiet">
          {t("create.name")}
        </p>
      </FormGroup>
      <Content component="h2">{t("nav.drives")}</Content>
      {!drives && <Skeleton screenreaderText={t("loading")} />}
      {drives && rows.length === 0 && <p className="quiet">{t("drives.none")}</p>}
      {rows.length > 0 && (
        <Table aria-label={t("nav.drives")} variant="compact" gridBreakPoint="grid-md">
          <Thead>
            <Tr>
              <Th>{t("create.member")}</Th>
              <Th>{t("create.spare")}</Th>
              <Th>{t("drives.device")}</Th>
              <Th>{t("create.drive")}</Th>
            </Tr>
          </Thead>
          <Tbody>
            {rows.map(({ device, drive }) => (
              <Tr key={device}>
                {(["members", "spares"] as const).map((role) => {
                  const label = t(role === "members" ? "create.member" : "create.spare");
                  return (
                    <Td key={role} dataLabel={label}>
                      <Checkbox
                        id={`${role}-${device}`}
                        aria-label={`${label}: ${device}`}
                        isChecked={draft[role].includes(device)}
                        onChange={(_, on) => set(role, device, on)}
                      />
                    </Td>
                  );
                })}
                <Td dataLabel={t("drives.device")} className="path">
                  {device}
                </Td>
                <Td dataLabel={t("create.drive")}>{drive ? driveText(drive) : "–"}</Td>
              </Tr>
            ))}
          </Tbody>
        </Table>
      )}
      <p role="status">
        {plural("create.members", draft.members.length)},{" "}
        {plural("create.spares", draft.spares.length)}
      </p>
      <PathInput
        onAdd={(path) => {
          setTyped((all) => [...all, path]);
          set("members", path, true);
        }}
      />
      <OtherDrives drives={others} />
    </div>
  );
}

type Offer = { created: Created } | { failure: ApiFailure };

/** What each level would give of these drives. */
function useOffers(draft: Draft): Map<string, Offer> {
  const [offers, setOffers] = useState(new Map<string, Offer>());
  const extra = LEVELS.includes(draft.level) ? [] : [draft.level];
  const { level: _, ...rest } = draft;
  const key = JSON.stringify([rest, extra, draft.group ? draft.level : ""]);
  useEffect(() => {
    let stale = false;
    setOffers(new Map());
    const ask = async () => {
      for (const level of [...LEVELS, ...extra.filter((one) => /^\d+\+\d+$/.test(one))]) {
        const body = { ...requestOf(draft, level), dry_run: true };
        const offer: Offer = await door.request<Created>("POST", "v1/arrays", body).then(
          (created) => ({ created }),
          (error: unknown) => ({ failure: asFailure(error) }),
        );
        if (stale) return;
        setOffers((old) => new Map(old).set(level, offer));
      }
    };
    const timer = window.setTimeout(() => void ask(), 200);
    return () => {
      stale = true;
      window.clearTimeout(timer);
    };
    // `key` has all of the draft that a dry run looks at.
  }, [key]);
  return offers;
}

/** What the members together can do at most, in drives. */
function Speed({ level, members, group }: { level: string; members: number; group: number | null }) {
  const known = shape(level, members, group);
  if (!known) return null;
  return <>{t("create.speed", { read: members, write: known.data })}</>;
}

function ShapeStep({ draft, change }: { draft: Draft; change: Change }) {
  const offers = useOffers(draft);
  const [more, setMore] = useState(false);
  const { pools = [] } = useLive();
  const levels = LEVELS.includes(draft.level) ? LEVELS : [draft.level, ...LEVELS];
  const members = draft.members.length;
  return (
    <div className="stack">
      <p>{t("create.shape.about")}</p>
      <Table aria-label={t("create.shape")} variant="compact" gridBreakPoint="grid-md">
        <Thead>
          <Tr>
            <Th screenReaderText={t("create.choose")} />
            <Th>{t("array.level")}</Th>
            <Th>{t("array.size")}</Th>
            <Th>{t("array.survives")}</Th>
            <Th>{t("create.fast")}</Th>
          </Tr>
        </Thead>
        <Tbody>
          {levels.map((level) => {
            const offer = offers.get(level);
            const created = offer && "created" in offer ? offer.created : undefined;
            const failure = offer && "failure" in offer ? offer.failure : undefined;
            return (
              <Tr key={level}>
                <Td dataLabel={t("create.choose")}>
                  <input
                    type="radio"
                    name="level"
                    aria-label={t("create.level", { level })}
                    checked={draft.level === level}
                    disabled={failure !== undefined && draft.level !== level}
                    onChange={() => change({ level, group: "" })}
                  />
                </Td>
                <Td dataLabel={t("array.level")}>
                  {level} <span className="quiet">{named("level", level.replace(".", "_"))}</span>
                </Td>
                {failure ? (
                  <Td colSpan={3} lang="en" className="quiet" dataLabel={t("array.size")}>
                    {failure.found}
                  </Td>
                ) : (
                  <>
                    <Td dataLabel={t("array.size")} className="numbers">
                      {created ? bytes(created.size_bytes) : "…"}
                    </Td>
                    <Td dataLabel={t("array.survives")}>
                      {created ? tolerance(level, members, created.group_size) : "…"}
                    </Td>
                    <Td dataLabel={t("create.fast")} className="numbers">
                      {created ? (
                        <Speed level={level} members={members} group={created.group_size} />
                      ) : (
                        "…"
                      )}
                    </Td>
                  </>
                )}
              </Tr>
            );
          })}
        </Tbody>
      </Table>
      <p className="quiet">{t("create.fast.more")}</p>
      <ExpandableSection
        toggleText={t("create.more")}
        isExpanded={more}
        onToggle={(_, on) => setMore(on)}
      >
        <div className="columns">
          <FormGroup label={t("create.other")} fieldId="other-level">
            <TextInput
              id="other-level"
              placeholder="8+2"
              autoComplete="off"
              value={LEVELS.includes(draft.level) ? "" : draft.level}
              onChange={(_, text) => change({ level: text.trim() || "6" })}
            />
          </FormGroup>
          <StripSelect
            id="create-strip"
            value={draft.strip}
            onChange={(strip) => change({ strip })}
            none
          />
          <FormGroup label={t("create.group")} fieldId="create-group">
            <TextInput
              id="create-group"
              type="number"
              value={draft.group}
              onChange={(_, group) => change({ group })}
            />
          </FormGroup>
          <Choice
            id="init"
            value={draft.init}
            names={["auto", "trim", "lazy", "zero", "sync", "assume-clean"]}
            onChange={(init) => change({ init })}
          />
          <Choice
            id="write_hole"
            value={draft.write_hole}
            names={["closed", "degraded", "resync"]}
            onChange={(write_hole) => change({ write_hole })}
          />
          <Choice
            id="export"
            value={draft.export}
            names={["auto", "ublk", "nbd", "none"]}
            onChange={(value) => change({ export: value })}
          />
          <FormGroup label={named("setting", "pool")} fieldId="create-pool">
            <FormSelect
              id="create-pool"
              value={draft.pool}
              onChange={(_, pool) => change({ pool })}
            >
              <FormSelectOption value="" label={named("value", "none")} />
              {pools.map(({ name }) => (
                <FormSelectOption key={name} value={name} label={name} />
              ))}
            </FormSelect>
          </FormGroup>
        </div>
      </ExpandableSection>
    </div>
  );
}

function Choice(props: {
  id: "init" | "write_hole" | "export";
  value: string;
  names: string[];
  onChange: (name: string) => void;
}) {
  const { id, value, names, onChange } = props;
  return (
    <FormGroup label={t(`create.${id}`)} fieldId={`create-${id}`}>
      <FormSelect id={`create-${id}`} value={value} onChange={(_, name) => onChange(name)}>
        {names.map((name) => (
          <FormSelectOption key={name} value={name} label={named(`create.${id}`, name)} />
        ))}
      </FormSelect>
    </FormGroup>
  );
}

function LookStep({ draft, change }: { draft: Draft; change: Change }) {
  const { goToPrevStep, close } = useWizardContext();
  const [busy, setBusy] = useState(false);
  const [typed, setTyped] = useState("");
  const [failure, setFailure] = useState<ApiFailure>();
  const body = requestOf(draft);
  const plan = usePlan<Created>({ method: "POST", path: "v1/arrays", body });
  const answer = plan.answer;
  const ready = answer !== undefined && (!draft.force || typed === draft.name);
  const make = async () => {
    setBusy(true);
    setFailure(undefined);
    try {
      const created = await door.request<Created>("POST", "v1/arrays", body);
      say(t("create.made", { name: created.name }), created.notes);
      refresh();
      location.hash = arrayLink(created);
    } catch (error) {
      setFailure(asFailure(error));
      setBusy(false);
    }
  };
  const facts = answer && [
    [t("array.name"), answer.name],
    [t("array.level"), answer.level],
    [t("array.size"), bytes(answer.size_bytes)],
    [t("array.survives"), tolerance(answer.level, answer.members.length, answer.group_size)],
    [
      t("create.fast"),
      <Speed
        key="speed"
        level={answer.level}
        members={answer.members.length}
        group={answer.group_size}
      />,
    ],
    [t("array.strip"), bytes(answer.strip_bytes)],
    [t("array.members"), draft.members.join(", ")],
    [t("create.spare"), draft.spares.join(", ") || "–"],
  ];
  const refused = failure ?? plan.failure;
  return (
    <div className="stack">
      <Content component="h2">{t("create.look")}</Content>
      {facts && (
        <DescriptionList
          isHorizontal
          horizontalTermWidthModifier={{ default: "12ch", md: "20ch" }}
          aria-label={t("create.look")}
        >
          {facts.map(([label, value]) => (
            <DescriptionListGroup key={String(label)}>
              <DescriptionListTerm>{label}</DescriptionListTerm>
              <DescriptionListDescription>{value}</DescriptionListDescription>
            </DescriptionListGroup>
          ))}
        </DescriptionList>
      )}
      {answer?.notes.map((note) => (
        <Alert component="p" key={note} variant="info" isInline title={t("create.note")}>
          <span lang="en">{note}</span>
        </Alert>
      ))}
      <div aria-live="polite">
        {refused && (
          <Failure failure={refused} refused={failure ? undefined : t("act.refused")} />
        )}
        {!answer && !refused && <Skeleton screenreaderText={t("loading")} />}
      </div>
      <Checkbox
        id="create-force"
        label={t("force")}
        description={t("force.more")}
        isChecked={draft.force}
        onChange={(_, force) => change({ force })}
      />
      {draft.force && (
        <FormGroup label={t("act.type", { name: draft.name })} fieldId="force-name" isRequired>
          <TextInput
            id="force-name"
            value={typed}
            autoComplete="off"
            onChange={(_, text) => setTyped(text)}
          />
        </FormGroup>
      )}
      <WizardFooterWrapper>
        <Button variant="secondary" isDisabled={busy} onClick={() => void goToPrevStep()}>
          {t("back")}
        </Button>
        <Button isDisabled={!ready || busy} isLoading={busy} onClick={() => void make()}>
          {t("create.make")}
        </Button>
        <Button variant="link" onClick={close}>
          {t("cancel")}
        </Button>
      </WizardFooterWrapper>
    </div>
  );
}
