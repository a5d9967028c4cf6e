"""Commands in copies of a process end as those of a process of their own."""

import json
import os
import sys

import pytest

from tests import processes
from tests.reliability.copies import ROOT

TRIES = """
import json, os, sys
from pathlib import Path
import clearhead.api, clearhead.cli.plan.plan, clearhead.cli.program  # What a copy need not import again.
from tests.reliability.copies import Copy, command
from tests.reliability.ways import WAYS
ways, found = {way.name: way for way in WAYS}, {}
for name in sys.argv[2:]:
    way, place = ways[name], Path(sys.argv[1]) / name
    place.mkdir()
    (place / ".in").touch()
    work = lambda: command(["summary", "./bogus"], place, way.prepare, way.variables, starts=way.starts)
    with Copy(work, columns=way.columns) as copy:
        code = copy.ended(60)
        found[name] = [code, (place / ".err").read_text() if (place / ".err").exists() else ""]
print(json.dumps(found))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_one_line_of_a_mistake_in_some_surroundings(tmp_path):
    names = ("as wished", "no standard stream", "a full standard error", "a terminal of 20 columns", "ASCII alone")
    command = [sys.executable, "-c", TRIES, str(tmp_path), *names]
    done = processes.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    says = {name: err for name, (code, err) in found.items() if code == 2}
    assert says.keys() == {*names}
    assert says["as wished"].startswith("error: ./bogus: ")
    assert says["ASCII alone"] == says["as wished"]
    assert not any(says[name] for name in names[1:4])
