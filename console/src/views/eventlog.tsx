// All events that the page has, by severity and array.

import { useState } from "react";
import { Card, CardBody, Content, FormSelect, FormSelectOption } from "@patternfly/react-core";

import { named, t } from "../i18n";
import { useLive } from "../live";
import { Events } from "../parts/events";

const SEVERITIES = ["info", "warning", "critical"];

export function EventsView() {
  const { events, arrays = [] } = useLive();
  const [severity, setSeverity] = useState("info");
  const [array, setArray] = useState("");
  const least = SEVERITIES.indexOf(severity);
  const shown = events.filter(
    (event) =>
      SEVERITIES.indexOf(event.severity) >= least && (array === "" || event.array === array),
  );
  return (
    <>
      <Content component="h1">{t("nav.events")}</Content>
      <Card>
        <CardBody className="stack">
          <div className="columns">
            <FormSelect
              aria-label={t("events.severity")}
              value={severity}
              onChange={(_, value) => setSeverity(value)}
            >
              {SEVERITIES.map((name) => (
                <FormSelectOption key={name} value={name} label={named("events.from", name)} />
              ))}
            </FormSelect>
            <FormSelect
              aria-label={t("array.name")}
              value={array}
              onChange={(_, value) => setArray(value)}
            >
              <FormSelectOption value="" label={t("events.all")} />
              {arrays.map(({ name }) => (
                <FormSelectOption key={name} value={name} label={name} />
              ))}
            </FormSelect>
          </div>
          <Events events={shown} label={t("nav.events")} />
        </CardBody>
      </Card>
    </>
  );
}
