// All arrays at a glance, and what went wrong last.

import { Button, Card, CardBody, CardTitle, Content, EmptyState, EmptyStateActions, EmptyStateBody, EmptyStateFooter } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";

import type { Array as ArrayInfo } from "../api";
import { bytes, percent, rate } from "../format";
import { plural, t } from "../i18n";
import { jobsOf, useLive, type Live } from "../live";
import type { Sample } from "../rates";
import { Events } from "../parts/events";
import { JobBar } from "../parts/jobs";
import { ArrayState, condition, inSync, slots } from "../parts/labels";
import { Spark } from "../parts/spark";

const WORST = [
  "failed",
  "unresponsive",
  "not_found",
  "incomplete",
  "degraded",
  "stopping",
  "destroyed",
  "unknown",
  "stopped",
  "optimal",
];
const TROUBLED = ["failed", "unresponsive", "not_found", "incomplete", "degraded"];

/** By its uuid, which no other array has; what is known by its name alone is found by that. */
export function arrayLink(array: { uuid: string } | string): string {
  return `#/array/${encodeURIComponent(typeof array === "string" ? array : array.uuid)}`;
}

/** The arrays that a part of the address means: a uuid, or a name that several may have. */
export function meant(arrays: ArrayInfo[], text: string): ArrayInfo[] {
  const exact = arrays.filter((one) => one.uuid === text);
  return exact.length > 0 ? exact : arrays.filter((one) => one.name === text);
}

/** The rates of all arrays together, as far back as the longest has been looked at. */
function sum(samples: Map<string, Sample[]>, of: (sample: Sample) => number): number[] {
  const all = [...samples.values()];
  const longest = Math.max(0, ...all.map((one) => one.length));
  return Array.from({ length: longest }, (_, at) =>
    all.reduce((total, one) => {
      const sample = one[one.length - longest + at];
      return total + (sample ? of(sample) : 0);
    }, 0),
  );
}

export function Overview() {
  const live = useLive();
  const arrays = [...(live.arrays ?? [])].sort(
    (a, b) =>
      WORST.indexOf(condition(a)) - WORST.indexOf(condition(b)) || a.name.localeCompare(b.name),
  );
  const serious = live.events.filter((event) => event.severity !== "info").slice(-8);
  return (
    <>
      <div className="row">
        <Content component="h1">{t("nav.overview")}</Content>
        <Button component="a" href="#/create" variant="primary">
          {t("create.button")}
        </Button>
      </div>
      {arrays.length === 0 ? <NoArrays /> : <Tiles arrays={arrays} live={live} />}
      {arrays.length > 0 && (
        <Card>
          <CardTitle component="h2">{t("overview.arrays")}</CardTitle>
          <CardBody>
            <ArrayTable arrays={arrays} live={live} />
          </CardBody>
        </Card>
      )}
      <Card>
        <CardTitle component="h2">{t("overview.serious")}</CardTitle>
        <CardBody>
          <Events events={serious} label={t("overview.serious")} />
        </CardBody>
      </Card>
    </>
  );
}

function NoArrays() {
  return (
    <EmptyState titleText={t("overview.none")} headingLevel="h2">
      <EmptyStateBody>{t("overview.none.more")}</EmptyStateBody>
      <EmptyStateFooter>
        <EmptyStateActions>
          <Button component="a" href="#/create" variant="primary">
            {t("create.button")}
          </Button>
        </EmptyStateActions>
      </EmptyStateFooter>
    </EmptyState>
  );
}

function Tiles({ arrays, live }: { arrays: ArrayInfo[]; live: Live }) {
  const count = (state: string) => arrays.filter((array) => condition(array) === state).length;
  const troubled = TROUBLED.reduce((total, state) => total + count(state), 0);
  const size = arrays.reduce((total, array) => total + array.size_bytes, 0);
  const jobs = arrays.flatMap((array) => jobsOf(array, live));
  const failing = live.alerts?.channels.filter((channel) => channel.failing).length ?? 0;
  return (
    <div className="tiles">
      <Card isCompact>
        <CardTitle component="h2">{t("overview.health")}</CardTitle>
        <CardBody>
          <div className="figure">
            {troubled === 0 ? t("overview.healthy") : plural("overview.troubled", troubled)}
          </div>
          <div className="row">
            {WORST.filter((state) => count(state) > 0).map((state) => (
              <span key={state}>
                {count(state)} <ArrayState state={state} />
              </span>
            ))}
          </div>
        </CardBody>
      </Card>
      <Card isCompact>
        <CardTitle component="h2">{t("overview.capacity")}</CardTitle>
        <CardBody>
          <div className="figure">{bytes(size)}</div>
          <div className="quiet">{plural("overview.over", arrays.length)}</div>
        </CardBody>
      </Card>
      <Card isCompact>
        <CardTitle component="h2">{t("overview.work")}</CardTitle>
        <CardBody>
          <div className="figure">{plural("overview.jobs", jobs.length)}</div>
          <div className="quiet">
            {!live.alerts
              ? t("overview.channels.unknown")
              : live.alerts.channels.length === 0
                ? t("overview.channels.none")
                : failing > 0
                  ? plural("overview.channels.failing", failing)
                  : t("overview.channels.good")}
          </div>
        </CardBody>
      </Card>
      <Card isCompact>
        <CardTitle component="h2">{t("overview.throughput")}</CardTitle>
        <CardBody>
          <Spark
            title={t("overview.throughput.all")}
            read={sum(live.samples, (sample) => sample.read.bytesPerSecond)}
            write={sum(live.samples, (sample) => sample.write.bytesPerSecond)}
            show={rate}
          />
        </CardBody>
      </Card>
    </div>
  );
}

function ArrayTable({ arrays, live }: { arrays: ArrayInfo[]; live: Live }) {
  return (
    <Table aria-label={t("overview.arrays")} variant="compact" gridBreakPoint="grid-lg">
      <Thead>
        <Tr>
          <Th>{t("array.name")}</Th>
          <Th>{t("array.state")}</Th>
          <Th>{t("array.level")}</Th>
          <Th>{t("array.size")}</Th>
          <Th>{t("array.members")}</Th>
          <Th>{t("array.rates")}</Th>
          <Th>{t("array.jobs")}</Th>
        </Tr>
      </Thead>
      <Tbody>
        {arrays.map((array) => {
          const last = live.samples.get(array.uuid)?.at(-1);
          const written = array.size_bytes - array.unwritten_bytes;
          return (
            <Tr key={array.uuid}>
              <Td dataLabel={t("array.name")}>
                <a href={arrayLink(array)}>{array.name}</a>
                {meant(arrays, array.name).length > 1 && (
                  <div className="quiet path">{array.uuid}</div>
                )}
              </Td>
              <Td dataLabel={t("array.state")}>
                <ArrayState state={condition(array)} />
              </Td>
              <Td dataLabel={t("array.level")}>{array.level}</Td>
              <Td dataLabel={t("array.size")} className="numbers">
                {array.not_found ? "–" : bytes(array.size_bytes)}
                {array.size_bytes > 0 && array.state !== "stopped" && (
                  <span className="quiet">
                    {" "}
                    {t("array.written", { share: percent(written / array.size_bytes) })}
                  </span>
                )}
              </Td>
              <Td dataLabel={t("array.members")} className="numbers">
                {t("array.whole", { whole: inSync(array), all: slots(array) })}
                {array.spares.length > 0 && ` ${plural("array.spares", array.spares.length)}`}
              </Td>
              <Td dataLabel={t("array.rates")} className="numbers">
                {last
                  ? t("array.rates.now", {
                      read: rate(last.read.bytesPerSecond),
                      write: rate(last.write.bytesPerSecond),
                    })
                  : "–"}
              </Td>
              <Td dataLabel={t("array.jobs")}>
                {jobsOf(array, live).map((job) => (
                  <JobBar key={`${job.kind}-${job.slot}`} job={job} />
                ))}
              </Td>
            </Tr>
          );
        })}
      </Tbody>
    </Table>
  );
}
