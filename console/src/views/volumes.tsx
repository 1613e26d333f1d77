// The volumes of an array.

import { useState } from "react";
import { Button, Checkbox, FormGroup, TextInput } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";

import type { Array as ArrayInfo, Volume } from "../api";
import { arrayPath } from "../dialogs/array";
import { bytes, moment, parseSize } from "../format";
import { t } from "../i18n";
import { Act } from "../parts/act";

type VolumeAct = "resize" | "rename" | "delete";
const ACTS: VolumeAct[] = ["resize", "rename", "delete"];

export function Volumes({ array }: { array: ArrayInfo }) {
  const [make, setMake] = useState(false);
  const [act, setAct] = useState<{ act: VolumeAct; volume: Volume }>();
  const close = () => setAct(undefined);
  return (
    <>
      <p>
        {!array.carved && t("volumes.none")}
        {array.carved &&
          array.volume_free_bytes !== null &&
          t("volumes.free", { size: bytes(array.volume_free_bytes) })}
      </p>
      <div>
        <Button
          variant="secondary"
          isDisabled={array.state === "stopped"}
          onClick={() => setMake(true)}
        >
          {t("volume.make")}
        </Button>
      </div>
      {array.volumes.length > 0 && (
        <Table aria-label={t("array.volumes")} variant="compact" gridBreakPoint="grid-lg">
          <Thead>
            <Tr>
              <Th>{t("array.name")}</Th>
              <Th>{t("array.size")}</Th>
              <Th>{t("array.device")}</Th>
              <Th>{t("volume.created")}</Th>
              <Th screenReaderText={t("actions")} />
            </Tr>
          </Thead>
          <Tbody>
            {array.volumes.map((volume) => (
              <Tr key={volume.uuid}>
                <Td dataLabel={t("array.name")}>{volume.name}</Td>
                <Td dataLabel={t("array.size")} className="numbers">
                  {bytes(volume.size_bytes)}
                </Td>
                <Td dataLabel={t("array.device")} className="path">
                  {volume.device ?? "–"}
                </Td>
                <Td dataLabel={t("volume.created")}>{moment(volume.created)}</Td>
                <Td dataLabel={t("actions")}>
                  <div className="row">
                    {ACTS.map((one) => (
                      <Button
                        key={one}
                        variant="link"
                        size="sm"
                        isInline
                        isDanger={one === "delete"}
                        aria-label={`${t(`volume.${one}`)}: ${volume.name}`}
                        onClick={() => setAct({ act: one, volume })}
                      >
                        {t(`volume.${one}`)}
                      </Button>
                    ))}
                  </div>
                </Td>
              </Tr>
            ))}
          </Tbody>
        </Table>
      )}
      {make && <Make array={array} onClose={() => setMake(false)} />}
      {act?.act === "resize" && <Resize array={array} volume={act.volume} onClose={close} />}
      {act?.act === "rename" && <Rename array={array} volume={act.volume} onClose={close} />}
      {act?.act === "delete" && (
        <Act
          title={t("volume.delete.title", { name: act.volume.name })}
          about={t("volume.delete.about")}
          request={{ method: "DELETE", path: volumePath(array, act.volume), body: {} }}
          submit={t("volume.delete")}
          danger
          typed={act.volume.name}
          stale={moved(array, act.volume)}
          onClose={close}
        />
      )}
    </>
  );
}

/** What changed of a volume since it was chosen: requests name it by its name. */
function moved(array: ArrayInfo, { name, uuid }: Volume): string | undefined {
  const now = array.volumes.find((volume) => volume.name === name);
  return now?.uuid === uuid ? undefined : t("volume.moved", { name });
}

const volumePath = (array: ArrayInfo, volume: Volume): string =>
  `${arrayPath(array)}/volumes/${encodeURIComponent(volume.name)}`;

interface Props {
  array: ArrayInfo;
  onClose: () => void;
}

function SizeInput(props: { value: string; onChange: (text: string) => void; help: string }) {
  const { value, onChange, help } = props;
  return (
    <FormGroup label={t("array.size")} fieldId="volume-size" isRequired>
      <TextInput
        id="volume-size"
        value={value}
        placeholder="100 GiB"
        autoComplete="off"
        aria-describedby="volume-size-help"
        validated={value !== "" && parseSize(value) === undefined ? "error" : "default"}
        onChange={(_, text) => onChange(text)}
      />
      <p id="volume-size-help" className="quiet">
        {help}
      </p>
    </FormGroup>
  );
}

function Make({ array, onClose }: Props) {
  const [name, setName] = useState("");
  const [size, setSize] = useState("");
  const [force, setForce] = useState(false);
  const wanted = size === "" ? null : parseSize(size);
  const body = name && wanted !== undefined ? { name, size_bytes: wanted, force } : undefined;
  return (
    <Act
      title={t("volume.make.title", { name: array.name })}
      about={array.carved ? undefined : t("volume.make.first")}
      request={{ method: "POST", path: `${arrayPath(array)}/volumes`, body }}
      submit={t("volume.make")}
      done={t("volume.made", { name })}
      danger={force}
      typed={force ? array.name : undefined}
      onClose={onClose}
    >
      <FormGroup label={t("array.name")} fieldId="volume-name" isRequired>
        <TextInput
          id="volume-name"
          value={name}
          autoComplete="off"
          onChange={(_, text) => setName(text.trim())}
        />
      </FormGroup>
      <SizeInput value={size} onChange={setSize} help={t("volume.size.all")} />
      {!array.carved && (
        <Checkbox
          id="volume-force"
          label={t("volume.force")}
          description={t("volume.force.more")}
          isChecked={force}
          onChange={(_, on) => setForce(on)}
        />
      )}
    </Act>
  );
}

function Resize({ array, volume, onClose }: Props & { volume: Volume }) {
  const [size, setSize] = useState("");
  const wanted = parseSize(size);
  const shrink = wanted !== undefined && wanted < volume.size_bytes;
  return (
    <Act
      title={t("volume.resize.title", { name: volume.name })}
      about={shrink ? t("volume.shrink") : t("volume.resize.about")}
      request={{
        method: "PATCH",
        path: volumePath(array, volume),
        body: wanted === undefined ? undefined : { size_bytes: wanted, shrink },
      }}
      submit={t("volume.resize")}
      done={t("volume.resized", { name: volume.name })}
      danger={shrink}
      typed={shrink ? volume.name : undefined}
      stale={moved(array, volume)}
      onClose={onClose}
    >
      <SizeInput
        value={size}
        onChange={setSize}
        help={t("volume.size.now", { size: bytes(volume.size_bytes) })}
      />
    </Act>
  );
}

function Rename({ array, volume, onClose }: Props & { volume: Volume }) {
  const [name, setName] = useState(volume.name);
  const changed = name !== "" && name !== volume.name;
  return (
    <Act
      title={t("volume.rename.title", { name: volume.name })}
      request={{
        method: "PATCH",
        path: volumePath(array, volume),
        body: changed ? { name } : undefined,
      }}
      submit={t("volume.rename")}
      done={t("volume.renamed", { name })}
      stale={moved(array, volume)}
      onClose={onClose}
    >
      <FormGroup label={t("array.name")} fieldId="volume-name" isRequired>
        <TextInput
          id="volume-name"
          value={name}
          autoComplete="off"
          onChange={(_, text) => setName(text.trim())}
        />
      </FormGroup>
    </Act>
  );
}
