// Pools of spares: their devices, and the arrays that may take from them.

import { useState } from "react";
import { Button, Card, CardBody, CardTitle, Checkbox, Content, FormGroup, TextInput } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";

import type { Pool } from "../api";
import { bytes } from "../format";
import { plural, t } from "../i18n";
import { useLive } from "../live";
import { Act } from "../parts/act";
import { DrivePick } from "../parts/drivepick";
import { arrayLink } from "./overview";

const poolPath = (name: string): string => `v1/pools/${encodeURIComponent(name)}`;

type Open =
  | { act: "make" }
  | { act: "add" | "delete"; pool: Pool }
  | { act: "take"; pool: Pool; device: string };

export function PoolsView() {
  const { pools = [] } = useLive();
  const [open, setOpen] = useState<Open>();
  const close = () => setOpen(undefined);
  return (
    <>
      <div className="row">
        <Content component="h1">{t("nav.pools")}</Content>
        <Button onClick={() => setOpen({ act: "make" })}>{t("pool.make")}</Button>
      </div>
      <p>{t("pool.about")}</p>
      {pools.length === 0 && <p className="quiet">{t("pool.none")}</p>}
      {pools.map((pool) => (
        <PoolCard key={pool.name} pool={pool} onOpen={setOpen} />
      ))}
      {open?.act === "make" && <Make onClose={close} />}
      {open?.act === "add" && <Add pool={open.pool} onClose={close} />}
      {open?.act === "take" && (
        <Act
          title={t("pool.take.title", { device: open.device, name: open.pool.name })}
          request={{
            method: "POST",
            path: `${poolPath(open.pool.name)}/remove`,
            body: { devices: [open.device] },
          }}
          submit={t("pool.take")}
          onClose={close}
        />
      )}
      {open?.act === "delete" && (
        <Act
          title={t("pool.delete.title", { name: open.pool.name })}
          about={t("pool.delete.about")}
          request={{
            method: "POST",
            path: `${poolPath(open.pool.name)}/remove`,
            body: { all: true },
          }}
          submit={t("pool.delete")}
          danger
          typed={open.pool.name}
          onClose={close}
        />
      )}
    </>
  );
}

function PoolCard({ pool, onOpen }: { pool: Pool; onOpen: (open: Open) => void }) {
  return (
    <Card>
      <CardTitle component="h2">{pool.name}</CardTitle>
      <CardBody className="stack">
        {pool.devices.length > 0 && (
          <Table
            aria-label={t("pool.devices", { name: pool.name })}
            variant="compact"
            gridBreakPoint="grid-lg"
          >
            <Thead>
              <Tr>
                <Th>{t("drives.device")}</Th>
                <Th>{t("drives.size")}</Th>
                <Th screenReaderText={t("actions")} />
              </Tr>
            </Thead>
            <Tbody>
              {pool.devices.map(({ device, uuid, size_bytes }) => (
                <Tr key={uuid}>
                  <Td dataLabel={t("drives.device")} className="path">
                    {device}
                  </Td>
                  <Td dataLabel={t("drives.size")} className="numbers">
                    {bytes(size_bytes)}
                  </Td>
                  <Td dataLabel={t("actions")}>
                    <Button
                      variant="link"
                      size="sm"
                      isInline
                      aria-label={`${t("pool.take")}: ${device}`}
                      onClick={() => onOpen({ act: "take", pool, device })}
                    >
                      {t("pool.take")}
                    </Button>
                  </Td>
                </Tr>
              ))}
            </Tbody>
          </Table>
        )}
        {pool.arrays.length === 0 ? (
          <p className="quiet">{t("pool.unused")}</p>
        ) : (
          <ul>
            {pool.arrays.map(({ name, fitting }) => (
              <li key={name}>
                <a href={arrayLink(name)}>{name}</a>: {plural("pool.fitting", fitting)}
              </li>
            ))}
          </ul>
        )}
        <div className="row">
          <Button
            variant="secondary"
            aria-label={`${t("pool.add")}: ${pool.name}`}
            onClick={() => onOpen({ act: "add", pool })}
          >
            {t("pool.add")}
          </Button>
          <Button
            variant="secondary"
            isDanger
            aria-label={`${t("pool.delete")}: ${pool.name}`}
            onClick={() => onOpen({ act: "delete", pool })}
          >
            {t("pool.delete")}
          </Button>
        </div>
      </CardBody>
    </Card>
  );
}

function ForceBox({ force, setForce }: { force: boolean; setForce: (on: boolean) => void }) {
  return (
    <Checkbox
      id="pool-force"
      label={t("force")}
      description={t("force.more")}
      isChecked={force}
      onChange={(_, on) => setForce(on)}
    />
  );
}

function Make({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [devices, setDevices] = useState<string[]>([]);
  const [force, setForce] = useState(false);
  return (
    <Act
      title={t("pool.make")}
      request={{
        method: "POST",
        path: poolPath(name),
        body: name && devices.length > 0 ? { devices, force } : undefined,
      }}
      submit={t("pool.make")}
      danger={force}
      typed={force ? name : undefined}
      onClose={onClose}
    >
      <FormGroup label={t("array.name")} fieldId="pool-name" isRequired>
        <TextInput
          id="pool-name"
          value={name}
          autoComplete="off"
          onChange={(_, text) => setName(text.trim())}
        />
      </FormGroup>
      <DrivePick legend={t("pool.drives")} chosen={devices} onChange={setDevices} many />
      <ForceBox force={force} setForce={setForce} />
    </Act>
  );
}

function Add({ pool, onClose }: { pool: Pool; onClose: () => void }) {
  const [devices, setDevices] = useState<string[]>([]);
  const [force, setForce] = useState(false);
  return (
    <Act
      title={t("pool.add.title", { name: pool.name })}
      request={{
        method: "POST",
        path: `${poolPath(pool.name)}/add`,
        body: devices.length > 0 ? { devices, force } : undefined,
      }}
      submit={t("pool.add")}
      danger={force}
      typed={force ? pool.name : undefined}
      onClose={onClose}
    >
      <DrivePick legend={t("pool.drives")} chosen={devices} onChange={setDevices} many />
      <ForceBox force={force} setForce={setForce} />
    </Act>
  );
}
