// A line of reads and one of writes over the last two minutes.

import { t } from "../i18n";

const WIDTH = 120;
const HEIGHT = 40;

function line(values: number[], most: number, places: number): string {
  const step = WIDTH / Math.max(places - 1, 1);
  const from = places - values.length;
  return values
    .map((value, at) => {
      const x = (from + at) * step;
      const y = HEIGHT - 1 - (value / most) * (HEIGHT - 3);
      return `${at === 0 ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
    })
    .join("");
}

export function Spark(props: {
  title: string;
  read: number[];
  write: number[];
  show: (value: number) => string;
  places?: number;
}) {
  const { title, read, write, show, places = 60 } = props;
  const most = Math.max(1e-9, ...read, ...write);
  const [lastRead, lastWrite] = [read.at(-1) ?? 0, write.at(-1) ?? 0];
  const values = { read: show(lastRead), write: show(lastWrite) };
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <svg
        className="spark"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={t("spark.now", { title, ...values })}
      >
        <path className="floor" d={`M0 ${HEIGHT - 1}H${WIDTH}`} />
        <path className="read" d={line(read, most, places)} />
        <path className="write" d={line(write, most, places)} />
      </svg>
      <div className="row numbers">
        <span className="key read">{t("spark.read", { value: values.read })}</span>
        <span className="key write">{t("spark.write", { value: values.write })}</span>
        <span className="quiet">{t("spark.most", { value: show(most < 1e-6 ? 0 : most) })}</span>
      </div>
    </figure>
  );
}
