#!/usr/bin/env python3
"""Makes a .NET installation from the shared frameworks in a self-contained app.

usage: split-frameworks.py APP ROOT

Copies the files of APP to ROOT/shared/NAME/VERSION and ROOT/host/fxr/VERSION, as APP's deps.json
assigns them.
"""
import json
import pathlib
import shutil
import sys

app, root = map(pathlib.Path, sys.argv[1:])
deps = json.loads(next(app.glob("*.deps.json")).read_text())
target = deps["runtimeTarget"]["name"]
frameworks = {
    name: version for name, version in (
        pack.removeprefix("runtimepack.").replace(".Runtime.linux-x64", "").split("/")
        for pack in deps["targets"][target] if pack.startswith("runtimepack."))}
base = "Microsoft.NETCore.App"

for name, version in frameworks.items():
    package = f"{name}.Runtime.linux-x64/{version}"
    assets = deps["targets"][target][f"runtimepack.{package}"]
    directory = root / "shared" / name / version
    directory.mkdir(parents=True)
    for file in [*assets.get("runtime", {}), *assets.get("native", {})]:
        shutil.copy(app / file, directory / file)
    if name == base:
        fxr = root / "host" / "fxr" / version
        fxr.mkdir(parents=True)
        (directory / "libhostfxr.so").rename(fxr / "libhostfxr.so")
        assets["native"].pop("libhostfxr.so")
        (directory / "createdump").chmod(0o755)
    (directory / f"{name}.deps.json").write_text(json.dumps({
        "runtimeTarget": deps["runtimeTarget"],
        "targets": {target: {package: assets}},
        "libraries": {package: {"type": "package", "serviceable": True, "sha512": ""}},
    }, indent=2))
    options = {"tfm": "net" + ".".join(version.split(".")[:2])}
    if name != base:
        options |= {"framework": {"name": base, "version": frameworks[base]}, "rollForward": "LatestPatch"}
    (directory / f"{name}.runtimeconfig.json").write_text(json.dumps({"runtimeOptions": options}, indent=2))
