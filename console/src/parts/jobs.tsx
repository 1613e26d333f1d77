// Background jobs: how far, how fast, how long still, and what can be done about each.

import { useState } from "react";
import { Button, Progress } from "@patternfly/react-core";

import type { Array as ArrayInfo, Job } from "../api";
import { arrayPath } from "../dialogs/array";
import { bytes, duration, micros, rate, slotName } from "../format";
import { named, t, type Key } from "../i18n";
import { Act } from "./act";

export const jobName = (job: Job): string =>
  named("job", job.kind) + (job.slot === null ? "" : ` (${slotName(job.slot)})`);

export function jobText(job: Job): string {
  if (job.paused) {
    return job.paused_by
      ? t("job.paused.by", { why: named("paused", job.paused_by) })
      : t("job.paused");
  }
  const at = rate(job.rate_bytes_per_s);
  return job.eta_s === null ? at : t("job.left", { rate: at, time: duration(job.eta_s) });
}

export function JobBar({ job }: { job: Job }) {
  const share = job.total_bytes > 0 ? (100 * job.done_bytes) / job.total_bytes : 0;
  const name = jobName(job);
  return (
    <Progress
      value={Math.min(100, Math.floor(share * 10) / 10)}
      title={name}
      aria-label={name}
      size="sm"
      helperText={jobText(job)}
      variant={job.paused ? "warning" : undefined}
    />
  );
}

type Step = { key: Key; path: string; body: object };

function steps(array: ArrayInfo, job: Job): Step[] {
  const path = arrayPath(array);
  const simple = (action: string): Step => ({
    key: `job.${action}` as Key,
    path: `${path}/${job.kind}`,
    body: { action },
  });
  const go = job.paused ? "start" : undefined;
  switch (job.kind) {
    case "scrub":
      return [simple(go ?? "pause"), simple("stop")];
    case "rebuild":
    case "init":
      return [simple(go ?? "stop")];
    case "restripe": {
      if (!array.moving) return [];
      const action = array.moving.stopped ? "continue" : "stop";
      const key = array.moving.stopped ? "job.start" : "job.stop";
      return [{ key, path: `${path}/restripe`, body: { action } }];
    }
    default:
      return [];
  }
}

export function Jobs({ array, jobs }: { array: ArrayInfo; jobs: Job[] }) {
  const [step, setStep] = useState<{ step: Step; job: Job }>();
  if (jobs.length === 0) return <p className="quiet">{t("jobs.none")}</p>;
  return (
    <div className="stack">
      {jobs.map((job) => (
        <div key={`${job.kind}-${job.slot}`}>
          <JobBar job={job} />
          <div className="row quiet numbers">
            <span>
              {t("job.done", { done: bytes(job.done_bytes), total: bytes(job.total_bytes) })}
            </span>
            {job.partial && <span>{t("job.partial")}</span>}
            {job.held_back_by === "priority" && <span>{t("job.held.priority")}</span>}
            {job.held_back_by === "latency" && <span>{t("job.held.latency")}</span>}
            {job.foreground_p99_us !== null && (
              <span>{t("job.beside", { time: micros(job.foreground_p99_us) })}</span>
            )}
            {(job.kind === "scrub" || job.kind === "resync") && (
              <span>
                {t("job.found", { bad: job.inconsistent_stripes, good: job.repaired_stripes })}
              </span>
            )}
          </div>
          <div className="row">
            {steps(array, job).map((one) => (
              <Button
                key={one.key}
                variant="secondary"
                size="sm"
                aria-label={`${t(one.key)}: ${jobName(job)}`}
                onClick={() => setStep({ step: one, job })}
              >
                {t(one.key)}
              </Button>
            ))}
          </div>
        </div>
      ))}
      {step && (
        <Act
          title={`${t(step.step.key)}: ${jobName(step.job)}`}
          request={{ method: "POST", path: step.step.path, body: step.step.body }}
          submit={t(step.step.key)}
          onClose={() => setStep(undefined)}
        />
      )}
    </div>
  );
}
