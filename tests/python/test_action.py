"""packaging/action: its steps run here as in a workflow, with neap on PATH; without torch, on a command that does not
need it. packaging/test_wheel.sh runs the step that installs neap where it is not."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import yaml

ACTION = pathlib.Path(os.environ["NEAP_SOURCE"]) / "packaging" / "action"
INPUT = re.compile(r"\$\{\{ inputs\.([a-z-]+) \}\}")


class Action(unittest.TestCase):
    def steps(self, **given):
        """Runs all steps. Returns the last one's exit status and what they printed."""
        action = yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))
        inputs = {name: given.get(name.replace("-", "_"), one.get("default", "")) for name, one in action["inputs"].items()}
        printed = ""
        with tempfile.TemporaryDirectory() as folder:
            base = {**os.environ, "GITHUB_ACTION_PATH": str(ACTION), "RUNNER_TEMP": folder, "XDG_STATE_HOME": folder}
            base["PATH"] = f"{pathlib.Path(os.environ['NEAP']).parent}:{base['PATH']}"
            for step in action["runs"]["steps"]:
                self.assertEqual(step["shell"], "bash")
                own = {name: INPUT.sub(lambda found: inputs[found[1]], text) for name, text in step.get("env", {}).items()}
                done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=folder, env={**base, **own}, capture_output=True, text=True)
                printed += done.stdout + done.stderr
                if done.returncode:
                    break  # as a workflow does
        return done.returncode, printed

    def test_a_command_that_fails(self):
        """`neap check` of a failing command has the command's own exit status; the matcher finds what failed."""
        code, printed = self.steps(command="false\nexit 0", max_peak="20GiB", steps="1")
        self.assertEqual(code, 1, printed)
        code, printed = self.steps(command="exit 7", max_peak="20GiB", steps="1")
        self.assertEqual(code, 7, printed)
        self.assertIn("::add-matcher::", printed)
        pattern = json.loads((ACTION / "problem-matcher.json").read_text(encoding="utf-8"))["problemMatcher"][0]["pattern"][0]
        line = "neap check: FAILED: peak 76.6 MiB, 12.6 MiB over the bound of 64.0 MiB (NVIDIA H100 80GB HBM3, simulated)"
        self.assertTrue(re.search(pattern["regexp"], line)[pattern["message"]].startswith("peak 76.6 MiB"))


if __name__ == "__main__":
    unittest.main()
