"""``accelc passes``: the table of the compiler's passes and rules."""

import click

from accelc.command import console
from accelc.isa.errors import ConfigError

DISABLE_OPTION = click.option(
    "--disable-pass",
    "disable",
    metavar="NAME",
    multiple=True,
    help="Leave out a pass or a rule of accelc passes; repeat for more.",
)


@click.command(short_help="List the compiler's passes and rules.")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def passes(name: str | None, as_json: bool) -> None:
    """List the passes that make a network faster, in the order they run, with what they rewrite.

    With NAME only that pass. Every pass and rule can be left out of a compilation, to see what it
    is good for, or whether it is to blame; the same table is in docs/passes.md.

    \b
    Examples:
      accelc passes
      accelc passes sink-transposes
      accelc compile net.onnx --disable-pass sink-transposes --report
    """
    from accelc.compiler.passes.table import BACKEND, BY_NAME, ORDER, PASSES, disabled_names
    from accelc.compiler.rewrite import Rule

    if name is not None and name not in BY_NAME:
        disabled_names([name])
        raise ConfigError(f"{name} is a rule, not a pass; accelc passes without a name lists both")
    chosen = [BY_NAME[name]] if name is not None else PASSES
    if as_json:
        console.print_json(
            {
                "order": list(ORDER),
                "passes": [
                    {
                        "name": found.name,
                        "summary": found.summary,
                        "can_be_disabled": not found.needed,
                        "rules": [
                            {
                                "name": step.name,
                                "before": step.before,
                                "after": step.after,
                                "local": isinstance(step, Rule),
                                "exact": step.exact,
                            }
                            for step in found.steps
                        ],
                    }
                    for found in chosen
                ],
            }
        )
        return
    rows = [
        [found.name if number == 0 else "", step.name, step.before, step.after,
         "" if step.exact else "rounds"]
        for found in chosen
        for number, step in enumerate(found.steps)
    ]  # fmt: skip
    if name is None:
        rows += [[b.name, b.name, b.before, b.after, ""] for b in BACKEND]
    console.show(
        console.table("passes", ("pass", "rule", "~before", "~after", "floats"), rows),
        *(f"{found.name}: {found.summary}" for found in chosen),
        *([f"order: {', '.join(ORDER)}"] if name is None else []),
    )
