// Turns the events of node's test runner into the lines that conformance/run reads.

export default async function* reporter(source) {
  for await (const { type, data } of source) {
    if ((type !== "test:pass" && type !== "test:fail") || data.details?.type === "suite") continue;
    const skipped = data.skip !== undefined && data.skip !== false;
    const error = data.details?.error?.cause ?? data.details?.error;
    yield JSON.stringify({
      name: data.name,
      outcome: skipped ? "skipped" : type === "test:pass" ? "passed" : "failed",
      secs: (data.details?.duration_ms ?? 0) / 1000,
      why: type === "test:fail" ? describe(error) : "",
    }) + "\n";
  }
}

function describe(error) {
  const text = `${error?.code ?? ""} ${error?.message ?? error}`;
  return text.replace(/\s+/g, " ").trim().slice(0, 300);
}
