"""``accelc suite``: ONNX's own backend tests, and the tier each of them ran on."""

import dataclasses

import click

from accelc.command import console


@click.command("suite", short_help="Run ONNX's backend tests and say on which tier each ran.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only tests of this kind.")
@click.option("-k", "pattern", default="", metavar="TEXT", help="Only tests with TEXT in the name.")
@click.option("--on", "device", default="CPU", show_default=True, help="Device of onnx.backend.")
@click.option("--list", "listed", is_flag=True, help="List every test that was not all native.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def suite(kinds: tuple[str, ...], pattern: str, device: str, listed: bool, as_json: bool) -> int:
    """Run the tests that the installed onnx brings for its backends.

    A test is native when no node of it ran through onnx.reference. Kinds are node, simple,
    pytorch-converted, pytorch-operator and light. The exit code is 1 when a test failed.

    \b
    Examples:
      accelc suite
      accelc suite --kind node -k resize --list
      accelc suite --json > suite.json
    """
    import onnx

    from accelc import suite as tests
    from accelc.backend import parse_device
    from accelc.isa.errors import InputError

    chosen: list[tests.Kind] = [kind for kind in tests.KINDS if not kinds or kind in kinds]
    if unknown := sorted(set(kinds) - set(tests.KINDS)):
        raise InputError(f"there is no kind {unknown[0]!r}; there are {', '.join(tests.KINDS)}")
    parse_device(device)
    outcomes: list[tests.Outcome] = []
    with console.progress("loading the tests") as show:
        for outcome in tests.run(chosen, pattern, device):
            outcomes.append(outcome)
            show(f"{len(outcomes)} tests, {outcome.name}")
    if not outcomes:
        raise InputError(f"no test of {', '.join(chosen)} has {pattern!r} in its name")
    table = tests.counts(outcomes)
    failed = any(outcome.status == "failed" for outcome in outcomes)
    if as_json:
        console.print_json(
            {
                "onnx": onnx.__version__,
                "counts": table,
                "tests": [dataclasses.asdict(outcome) for outcome in outcomes],
            }
        )
        return int(failed)
    rows = [
        [kind, sum(row.values()), row["native"] + row["reference"], *row.values()]
        for kind, row in table.items()
    ]
    columns = (
        "kind",
        ">tests",
        ">passed",
        ">all native",
        ">with reference",
        ">failed",
        ">excluded",
    )
    console.show(console.table(f"backend tests of onnx {onnx.__version__}", columns, rows))
    shown = [o for o in outcomes if o.status in ("failed", "excluded") or listed]
    rows = [
        [o.name, o.status, o.detail or ", ".join(o.operators)]
        for o in shown
        if o.status != "native"
    ]
    if rows:
        console.show(console.table("", ("test", "status", "~why"), rows))
    return int(failed)
