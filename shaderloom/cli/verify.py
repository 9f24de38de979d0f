"""``shaderloom verify``: check every byte of a bundle and run its samples."""

from __future__ import annotations

import typer

from .command import as_command
from .common import count_text, print_json
from .options import BundleArgument, DeviceOption, JsonOption, VerifyKeyOption
from .terminal import echo, progress


@as_command
def command(
    bundle: BundleArgument,
    verify_key: VerifyKeyOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a bundle: its signature, if a key is stated, the hashes of all files, and its samples on this device.

    The exit status is 1 if anything differs.

    [bold]Example[/bold]

      shaderloom verify squeezenet.shaderbundle
    """
    from ..bundles.session import load_bundle
    from ..bundles.verify import verify_samples

    with (
        progress(quiet=as_json) as report,
        load_bundle(bundle, device=device, progress=report, verify_key=verify_key) as session,
    ):
        session.bundle.check_all(report)
        report("running samples", 0, 0)
        results = list(verify_samples(session))
        manifest, name, files = session.bundle.manifest, session.device.name, session.bundle.file_count
    failed = [result for result in results if result.reason is not None]
    if as_json:
        print_json(
            {
                "bundle": str(bundle),
                "device": name,
                "files": files,
                "samples": len(manifest.samples),
                "outputs": [
                    {
                        "sample": result.sample,
                        "output": result.output,
                        "error": result.error if result.error != float("inf") else None,
                        "reason": result.reason,
                    }
                    for result in results
                ],
                "agrees": not failed,
            }
        )
    else:
        for result in results:
            verdict = result.reason or f"agrees ({result.error:.2g} of its largest magnitude)"
            echo(f"{result.sample}: output '{result.output}' {verdict}")
        samples = (
            f"{count_text(len(manifest.samples), 'sample')} run on {name}" if manifest.samples else "no samples to run"
        )
        echo(f"{files} files are intact; {samples}")
    if failed:
        raise typer.Exit(1)
