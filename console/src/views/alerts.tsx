// The channels of alerts, what they delivered, and a test of each.

import { useState } from "react";
import { Alert, Button, Card, CardBody, Content, Label } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";

import type { AlertTest, AlertTests } from "../api";
import { door, type ApiFailure } from "../door";
import { moment } from "../format";
import { named, t } from "../i18n";
import { refreshAlerts, useLive } from "../live";
import { asFailure, Failure } from "../parts/failure";

export function AlertsView() {
  const { alerts } = useLive();
  const [busy, setBusy] = useState<string>();
  const [tests, setTests] = useState<AlertTest[]>([]);
  const [failure, setFailure] = useState<ApiFailure>();
  const channels = alerts?.channels ?? [];
  const test = async (channel: string) => {
    setBusy(channel);
    setFailure(undefined);
    try {
      const answer = await door.request<AlertTests>("POST", "v1/alerts/test", { channel });
      setTests(answer.channels);
    } catch (error) {
      setFailure(asFailure(error));
    } finally {
      setBusy(undefined);
      refreshAlerts();
    }
  };
  return (
    <>
      <Content component="h1">{t("nav.alerts")}</Content>
      <div aria-live="polite" className="stack">
        {failure && <Failure failure={failure} />}
        {tests.map((one) => (
          <Alert component="p"
            key={one.channel}
            isInline
            variant={one.delivered ? "success" : "danger"}
            title={t(one.delivered ? "alerts.test.good" : "alerts.test.bad", {
              channel: one.channel,
            })}
          >
            <span lang="en">{one.error}</span>
          </Alert>
        ))}
      </div>
      <Card>
        <CardBody className="stack">
          {channels.length === 0 && (
            <Alert component="p" variant="warning" isInline title={t("alerts.none")}>
              {t("alerts.none.more")}
            </Alert>
          )}
          {alerts && alerts.unwritten_files > 0 && (
            <Alert component="p" variant="warning" isInline title={t("alerts.unwritten")} />
          )}
          {channels.length > 0 && (
            <Table aria-label={t("nav.alerts")} variant="compact" gridBreakPoint="grid-lg">
              <Thead>
                <Tr>
                  <Th>{t("alerts.channel")}</Th>
                  <Th>{t("array.state")}</Th>
                  <Th>{t("alerts.from")}</Th>
                  <Th>{t("alerts.counts")}</Th>
                  <Th>{t("alerts.last")}</Th>
                  <Th screenReaderText={t("actions")} />
                </Tr>
              </Thead>
              <Tbody>
                {channels.map((one) => (
                  <Tr key={one.name}>
                    <Td dataLabel={t("alerts.channel")}>
                      {one.name}
                      <div className="quiet">
                        {one.way}: {one.to}
                      </div>
                    </Td>
                    <Td dataLabel={t("array.state")}>
                      <Label status={one.failing ? "danger" : "success"} variant="outline">
                        {t(one.failing ? "alerts.failing" : "alerts.good")}
                      </Label>
                    </Td>
                    <Td dataLabel={t("alerts.from")}>{named("severity", one.severity)}</Td>
                    <Td dataLabel={t("alerts.counts")} className="numbers">
                      {t("alerts.counted", {
                        delivered: one.delivered,
                        queued: one.queued,
                        dropped: one.dropped,
                      })}
                    </Td>
                    <Td dataLabel={t("alerts.last")}>
                      {one.last_success ? moment(one.last_success) : "–"}
                      {one.last_error && (
                        <div className="quiet" lang="en">
                          {one.last_error_at && moment(one.last_error_at)} {one.last_error}
                        </div>
                      )}
                    </Td>
                    <Td dataLabel={t("actions")}>
                      <Button
                        variant="secondary"
                        size="sm"
                        isLoading={busy === one.name}
                        isDisabled={busy !== undefined}
                        aria-label={`${t("alerts.test")}: ${one.name}`}
                        onClick={() => void test(one.name)}
                      >
                        {t("alerts.test")}
                      </Button>
                    </Td>
                  </Tr>
                ))}
              </Tbody>
            </Table>
          )}
        </CardBody>
      </Card>
    </>
  );
}
