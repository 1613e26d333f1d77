// The drives that the daemon sees, and what each is used for.

import { useState } from "react";
import { Button, Card, CardBody, Content, Skeleton } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";

import type { Drive } from "../api";
import { bytes } from "../format";
import { t } from "../i18n";
import { useDrives } from "../live";
import { Act } from "../parts/act";
import { driveUse } from "../parts/drivepick";
import { arrayLink } from "./overview";

export function DrivesView() {
  const drives = useDrives();
  const [light, setLight] = useState<{ drive: Drive; on: boolean }>();
  const [clean, setClean] = useState<Drive>();
  return (
    <>
      <Content component="h1">{t("nav.drives")}</Content>
      <Card>
        <CardBody>
          {!drives && <Skeleton screenreaderText={t("loading")} />}
          {drives?.length === 0 && <p className="quiet">{t("drives.none")}</p>}
          {drives && drives.length > 0 && (
            <Table aria-label={t("nav.drives")} variant="compact" gridBreakPoint="grid-lg">
              <Thead>
                <Tr>
                  <Th>{t("drives.device")}</Th>
                  <Th>{t("drives.size")}</Th>
                  <Th>{t("drives.model")}</Th>
                  <Th>{t("drives.use")}</Th>
                  <Th screenReaderText={t("actions")} />
                </Tr>
              </Thead>
              <Tbody>
                {drives.map((drive) => (
                  <Tr key={drive.device}>
                    <Td dataLabel={t("drives.device")} className="path">
                      {drive.device}
                    </Td>
                    <Td dataLabel={t("drives.size")} className="numbers">
                      {drive.size_bytes === null ? "–" : bytes(drive.size_bytes)}
                    </Td>
                    <Td dataLabel={t("drives.model")}>
                      {[drive.model, drive.serial].filter(Boolean).join(" · ") || "–"}
                    </Td>
                    <Td dataLabel={t("drives.use")}>
                      {drive.array ? (
                        <a href={arrayLink(drive.array)}>{driveUse(drive)}</a>
                      ) : (
                        driveUse(drive)
                      )}
                      {drive.problem && (
                        <div className="quiet" lang="en">
                          {drive.problem.found}; {drive.problem.cure}
                        </div>
                      )}
                    </Td>
                    <Td dataLabel={t("actions")}>
                      <div className="row">
                        {[true, false].map((on) => (
                          <Button
                            key={String(on)}
                            variant="link"
                            size="sm"
                            isInline
                            aria-label={`${t(on ? "light.on" : "light.off")}: ${drive.device}`}
                            onClick={() => setLight({ drive, on })}
                          >
                            {t(on ? "light.on" : "light.off")}
                          </Button>
                        ))}
                        {drive.use === "other" && (
                          <Button
                            variant="link"
                            size="sm"
                            isInline
                            isDanger
                            aria-label={`${t("clean.button")}: ${drive.device}`}
                            onClick={() => setClean(drive)}
                          >
                            {t("clean.button")}
                          </Button>
                        )}
                      </div>
                    </Td>
                  </Tr>
                ))}
              </Tbody>
            </Table>
          )}
        </CardBody>
      </Card>
      {light && (
        <Act
          title={`${t(light.on ? "light.on" : "light.off")}: ${light.drive.device}`}
          request={{
            method: "POST",
            path: "v1/drives/locate",
            body: { device: light.drive.device, on: light.on },
          }}
          submit={t(light.on ? "light.on" : "light.off")}
          onClose={() => setLight(undefined)}
        />
      )}
      {clean && (
        <Act
          title={t("clean.title", { device: clean.device })}
          about={t("clean.about")}
          request={{ method: "POST", path: "v1/drives/clean", body: { devices: [clean.device] } }}
          submit={t("clean.button")}
          done={t("clean.done", { device: clean.device })}
          danger
          typed={clean.device}
          onClose={() => setClean(undefined)}
        />
      )}
    </>
  );
}
