// One array: its state, its members, its jobs, what it does now, and what can be done.

import { useState, type ReactNode } from "react";
import {
  Alert,
  Breadcrumb,
  BreadcrumbItem,
  Button,
  Card,
  CardBody,
  CardTitle,
  Content,
  DescriptionList,
  DescriptionListDescription,
  DescriptionListGroup,
  DescriptionListTerm,
  Dropdown,
  DropdownItem,
  DropdownList,
  MenuToggle,
  Progress,
  Tab,
  TabTitleText,
  Tabs,
} from "@patternfly/react-core";

import type { Array as ArrayInfo } from "../api";
import { ArrayDialog, type ArrayAct } from "../dialogs/array";
import { AddSpare } from "../dialogs/member";
import { Restripe } from "../dialogs/restripe";
import { bytes, count, micros, moment, percent, rate } from "../format";
import { named, plural, t, type Key } from "../i18n";
import { jobsOf, useLive } from "../live";
import { Events } from "../parts/events";
import { Jobs } from "../parts/jobs";
import { ArrayState, condition, slots } from "../parts/labels";
import { Spark } from "../parts/spark";
import { tolerance } from "../shape";
import { Members } from "./members";
import { arrayLink, meant } from "./overview";
import { SettingsForm } from "./settings";
import { Volumes } from "./volumes";

type Act = ArrayAct | "restripe" | "add";

const TABS: [string, Key][] = [
  ["members", "array.members"],
  ["settings", "array.settings"],
  ["volumes", "array.volumes"],
  ["events", "nav.events"],
];

export function ArrayView({ name, tab }: { name: string; tab: string }) {
  const [array, another] = meant(useLive().arrays ?? [], name);
  const crumbs = (
    <Breadcrumb aria-label={t("nav.place")}>
      <BreadcrumbItem to="#/">{t("nav.overview")}</BreadcrumbItem>
      <BreadcrumbItem isActive>{array?.name ?? name}</BreadcrumbItem>
    </Breadcrumb>
  );
  if (!array) {
    return (
      <>
        {crumbs}
        <Alert component="p" variant="warning" isInline title={t("array.gone", { name })}>
          {t("array.gone.more")}
        </Alert>
      </>
    );
  }
  if (another) {
    return (
      <>
        {crumbs}
        <Alert component="p" variant="warning" isInline title={t("array.several", { name })}>
          {t("array.several.more")}
        </Alert>
      </>
    );
  }
  return (
    <>
      {crumbs}
      {/* What is opened for one array is closed when the name means another. */}
      <OneArray key={array.uuid} array={array} tab={tab} />
    </>
  );
}

function OneArray({ array, tab }: { array: ArrayInfo; tab: string }) {
  const live = useLive();
  const [act, setAct] = useState<Act>();
  const close = () => setAct(undefined);
  return (
    <>
      <Head array={array} onAct={setAct} />
      <Notices array={array} />
      <div className="columns">
        <Card>
          <CardTitle component="h2">{t("array.jobs")}</CardTitle>
          <CardBody>
            <Moving array={array} />
            <Jobs array={array} jobs={jobsOf(array, live)} />
          </CardBody>
        </Card>
        <Now array={array} />
      </div>
      <Card>
        <CardBody>
          <Tabs
            activeKey={tab}
            aria-label={t("array.tabs")}
            onSelect={(_, key) => {
              location.hash = `${arrayLink(array)}/${key}`;
            }}
          >
            {TABS.map(([key, label]) => (
              <Tab key={key} eventKey={key} title={<TabTitleText>{t(label)}</TabTitleText>}>
                {key === tab && <div className="stack tab">{shown(tab, array)}</div>}
              </Tab>
            ))}
          </Tabs>
        </CardBody>
      </Card>
      {act === "restripe" && <Restripe array={array} onClose={close} />}
      {act === "add" && <AddSpare array={array} onClose={close} />}
      {act && act !== "restripe" && act !== "add" && (
        <ArrayDialog act={act} array={array} onClose={close} />
      )}
    </>
  );
}

function shown(tab: string, array: ArrayInfo): ReactNode {
  switch (tab) {
    case "settings":
      return <SettingsForm array={array} />;
    case "volumes":
      return <Volumes array={array} />;
    case "events":
      return <ArrayEvents array={array} />;
    default:
      return <Members array={array} />;
  }
}

function ArrayEvents({ array }: { array: ArrayInfo }) {
  const { events } = useLive();
  const own = events.filter((event) => event.array === array.name);
  return <Events events={own} label={t("nav.events")} />;
}

function Head({ array, onAct }: { array: ArrayInfo; onAct: (act: Act) => void }) {
  const [open, setOpen] = useState(false);
  const stopped = array.state === "stopped";
  // What has no drive can be neither started nor wiped, and what may have one is not forgotten.
  const items: Act[] = array.not_found
    ? mayBeOn(array) ? [] : ["forget"]
    : array.destroyed
      ? ["destroy"]
      : stopped
        ? ["rename", "destroy"]
        : ["add", "restripe", "grow", "init", "rename", "stop"];
  const served = stopped ? "start" : "scrub";
  const main: Act | undefined = array.not_found || array.destroyed ? undefined : served;
  return (
    <>
      <div className="row">
        <Content component="h1">{array.name}</Content>
        <ArrayState state={condition(array)} />
        {main && (
          <Button variant="secondary" onClick={() => onAct(main)}>
            {t(`${main}.open` as Key)}
          </Button>
        )}
        {items.length > 0 && <Dropdown
          isOpen={open}
          onOpenChange={setOpen}
          onSelect={() => setOpen(false)}
          toggle={(ref) => (
            <MenuToggle ref={ref} isExpanded={open} onClick={() => setOpen(!open)}>
              {t("actions")}
            </MenuToggle>
          )}
        >
          <DropdownList>
            {items.map((one) => (
              <DropdownItem
                key={one}
                isDanger={one === "destroy" || one === "stop"}
                onClick={() => onAct(one)}
              >
                {t(`${one}.open` as Key)}
              </DropdownItem>
            ))}
          </DropdownList>
        </Dropdown>}
      </div>
      <Facts array={array} />
    </>
  );
}

function Facts({ array }: { array: ArrayInfo }) {
  const parity = array.fixed_parities;
  const all: [Key, string | undefined][] = [
    ["array.level", array.level + (parity > 0 ? ` (${plural("array.fixed", parity)})` : "")],
    ["array.size", bytes(array.size_bytes)],
    ["array.survives", tolerance(array.level, slots(array), array.group_size)],
    ["array.strip", bytes(array.strip_bytes)],
    ["array.group", array.group_size === null ? undefined : String(array.group_size)],
    ["array.block", bytes(array.block_bytes)],
    ["array.device", array.device ?? undefined],
    ["array.uuid", array.uuid],
    ["array.export", array.export ? named("create.export", array.export.kind) : undefined],
    [
      "array.unwritten",
      array.unwritten_bytes > 0 && array.size_bytes > 0
        ? percent(array.unwritten_bytes / array.size_bytes)
        : undefined,
    ],
    [
      "array.last",
      array.last_scrub
        ? t("array.last.found", {
            time: moment(array.last_scrub.ended),
            bad: array.last_scrub.inconsistent_stripes,
            good: array.last_scrub.repaired_stripes,
          })
        : t("array.last.never"),
    ],
  ];
  // Nothing else is known of what has no drive.
  const facts = array.not_found ? all.filter(([label]) => label === "array.uuid") : all;
  return (
    <DescriptionList
      isCompact
      columnModifier={{ default: "1Col", sm: "2Col", lg: "3Col" }}
      aria-label={t("array.facts")}
    >
      {facts
        .filter((fact): fact is [Key, string] => fact[1] !== undefined)
        .map(([label, value]) => (
          <DescriptionListGroup key={label}>
            <DescriptionListTerm>{t(label)}</DescriptionListTerm>
            <DescriptionListDescription>{value}</DescriptionListDescription>
          </DescriptionListGroup>
        ))}
    </DescriptionList>
  );
}

/** What becomes of the members that are out. */
function wayOut(array: ArrayInfo): Key {
  const filled = new Set(array.members.filter((m) => m.device !== null).map((m) => m.slot));
  const empty = slots(array) - filled.size;
  const rebuilding = array.members.some((member) => member.state === "rebuilding");
  if (empty === 0) return rebuilding ? "notice.degraded.rebuild" : "notice.degraded.stale";
  return array.spares.length > 0 ? "notice.degraded.spare" : "notice.degraded.more";
}

/** Devices that cannot be read and may carry an array of which no drive is found. */
function mayBeOn(array: ArrayInfo): string {
  return (array.may_be_on ?? []).join(", ");
}

/** What is wrong, each with what to do. */
function Notices({ array }: { array: ArrayInfo }) {
  const name = array.name;
  return (
    <>
      {array.state === "degraded" && (
        <Alert component="p" variant="warning" isInline title={t("notice.degraded")}>
          {t(wayOut(array))}
        </Alert>
      )}
      {array.state === "failed" && (
        <Alert component="p" variant="danger" isInline title={t("notice.failed")}>
          {t("notice.failed.more")}
        </Alert>
      )}
      {array.not_found && (
        <Alert component="p" variant="danger" isInline title={t("notice.lost")}>
          {mayBeOn(array)
            ? t("notice.lost.unread", { devices: mayBeOn(array) })
            : t("notice.lost.more")}
        </Alert>
      )}
      {condition(array) === "incomplete" && (
        <Alert component="p" variant="warning" isInline title={t("notice.incomplete")}>
          {t("notice.incomplete.more", { name })}
        </Alert>
      )}
      {array.destroyed && (
        <Alert component="p" variant="warning" isInline title={t("notice.destroyed")}>
          {t("notice.destroyed.more", { date: array.destroyed, uuid: array.uuid })}
        </Alert>
      )}
      {array.unreadable_bytes > 0 && (
        <Alert component="p"
          variant="danger"
          isInline
          title={t("notice.unreadable", { size: bytes(array.unreadable_bytes) })}
        >
          {t("notice.unreadable.more")}
        </Alert>
      )}
      {array.undecided_regions > 0 && (
        <Alert component="p"
          variant="danger"
          isInline
          title={plural("notice.undecided", array.undecided_regions)}
        >
          {t("notice.undecided.more", { name })}
        </Alert>
      )}
      {array.volume_table_damaged && (
        <Alert component="p" variant="danger" isInline title={t("notice.volumes")}>
          {t("notice.volumes.more")}
        </Alert>
      )}
      {array.set_aside.map((aside) => (
        <Alert component="p" key={aside.device} variant="warning" isInline title={t("notice.aside", { ...aside, slot: "" })}>
          <span lang="en">
            {aside.found}
            {aside.cure && `; ${aside.cure}`}
          </span>{" "}
          <span className="quiet">{named("paused", aside.code)}</span>
        </Alert>
      ))}
    </>
  );
}

/** Data that moves to another shape. */
function Moving({ array: { moving } }: { array: ArrayInfo }) {
  if (!moving) return null;
  const share = moving.total_bytes > 0 ? (100 * moving.moved_bytes) / moving.total_bytes : 0;
  return (
    <Progress
      value={Math.floor(share)}
      title={t("moving.title")}
      aria-label={t("moving.title")}
      size="sm"
      helperText={t(moving.stopped ? "moving.stopped" : "moving.now", {
        from: moving.from_columns,
        to: moving.to_columns,
        old: bytes(moving.from_strip_bytes),
        new: bytes(moving.to_strip_bytes),
      })}
    />
  );
}

function Now({ array }: { array: ArrayInfo }) {
  const samples = useLive().samples.get(array.uuid) ?? [];
  const last = samples.at(-1);
  if (array.state === "stopped") {
    return (
      <Card>
        <CardTitle component="h2">{t("array.now")}</CardTitle>
        <CardBody className="quiet">{t("array.now.stopped")}</CardBody>
      </Card>
    );
  }
  return (
    <Card>
      <CardTitle component="h2">{t("array.now")}</CardTitle>
      <CardBody className="stack">
        <Spark
          title={t("overview.throughput")}
          read={samples.map((sample) => sample.read.bytesPerSecond)}
          write={samples.map((sample) => sample.write.bytesPerSecond)}
          show={rate}
        />
        <Spark
          title={t("array.latency")}
          read={samples.map((sample) => sample.read.p99Us ?? 0)}
          write={samples.map((sample) => sample.write.p99Us ?? 0)}
          show={micros}
        />
        <div className="row numbers quiet">
          {last &&
            t("array.iops", {
              read: count(last.read.perSecond),
              write: count(last.write.perSecond),
            })}
        </div>
      </CardBody>
    </Card>
  );
}
