"""The guide's task: it trains, is measured and answers as ours do."""

import json

from tests.examples.packages import follow, run

PYTHON = """
import clearhead
from tests.serve.tiny import client_of

model = clearhead.load("run")
with client_of(model) as client:
    served = client.post("/v1/predict", json={"inputs": ["dcba"]}).json()["predictions"]
print(model.predict(["dcba"]) == served == [{"sorted": "abcd"}])
"""


def test_a_task_of_another_package_is_trained_measured_and_asked(tmp_path):
    assert follow("task", tmp_path) == ["abcd"]
    site = tmp_path / "site"
    evaluate = ("-m", "clearhead", "evaluate", "run", "--text", "more.txt", "--json")
    code, said = run(*evaluate, path=site, cwd=tmp_path)
    assert code == 0, said
    assert json.loads(next(line for line in said.splitlines() if line.startswith("{")))["exact_match"] > 0.8
    assert run("-c", PYTHON, path=site, cwd=tmp_path) == (0, "True\n"), "in Python and on the server"
