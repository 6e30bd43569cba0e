"""What a GPU day relies on, without a GPU and without PyTorch: packing and comparing events, recordings that
continue, parts in their time, filling the page."""

import contextlib
import io
import json
import os
import pathlib
import random
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(os.environ.get("NEAP_SOURCE", pathlib.Path(__file__).resolve().parent.parent.parent))
sys.path[:0] = [str(SOURCE / "bench"), str(SOURCE / "tools")]
import gpu_day
import gpu_day_page
import gpu_events
import gpu_truth


def made_up(count=3000, seed=1):
    """Allocations and frees, in segments; a first fit would choose other block addresses."""
    draw = random.Random(seed)
    events = [("segment_alloc", 1 << 30, 0, 0x7F0000000000)]
    live = []
    for number in range(count):
        if live and draw.random() < 0.45:
            address, size, stream = live.pop(draw.randrange(len(live)))
            events += [("free_requested", size, stream, address), ("free_completed", size, stream, address)]
        else:
            size = 512 * draw.randrange(1, 4000)
            live.append((0x7F0000000000 + 4096 * number, size, draw.randrange(2)))
            events.append(("alloc", size, live[-1][2], live[-1][0]))
    return events


class Events(unittest.TestCase):
    def test_packed_events_come_back(self):
        for events in (made_up(), made_up(7, 2), [], [("oom", 1 << 40, 0, 0)]):
            self.assertEqual(gpu_events.unpack(json.loads(json.dumps(gpu_events.pack(events)))), events)

    def test_steps_that_repeat_are_small(self):
        step = made_up(500)[1:]
        packed = gpu_events.pack(made_up(1) + step * 100)
        self.assertLess(len(packed["columns"]), len(step) * 100 // 4)

    def test_equal_sequences(self):
        events = made_up()
        found = gpu_events.compare(events, [(a, s, t, address + (1 << 40)) for a, s, t, address in events])
        self.assertTrue(found.same)
        self.assertEqual((found.placed, found.gaps), (found.placements, []))

    def test_one_event_that_differs_is_found(self):
        events = made_up()
        place = next(i for i, event in enumerate(events) if i > 1000 and event[0] == "alloc")
        action, size, stream, address = events[place]
        for changed in ([(action, size + 512, stream, address)], [(action, size, stream + 7, address)], [], [events[place], events[place]]):
            other = [*events[:place], *changed, *events[place + 1 :]]
            found = gpu_events.compare(events, other)
            self.assertFalse(found.same)
            self.assertEqual(len(found.gaps), 1)
            self.assertGreaterEqual(found.equal, len(events) - 2)

    def test_another_place_is_not_another_event(self):
        events = made_up(50)
        place = next(i for i, event in enumerate(events) if event[0] == "alloc")
        moved = [*events]
        moved[place] = (*events[place][:3], events[place][3] + (1 << 20))
        found = gpu_events.compare(events, moved)
        self.assertTrue(found.same)
        self.assertEqual(found.placed, found.placements - 1)

    def test_the_order_of_frees_in_a_row_does_not_count(self):
        frees = [("free_completed", 512 * n, 0, n) for n in range(5)]
        end = [("alloc", 512, 0, 9)]
        self.assertTrue(gpu_events.compare(frees + end, frees[::-1] + end).same)
        self.assertFalse(gpu_events.compare(frees + end, frees[1:] + end + frees[:1]).same)

    def test_a_rest_that_is_missing(self):
        events = made_up()
        found = gpu_events.compare(events, events[: len(events) // 2])
        self.assertFalse(found.same)
        self.assertEqual(sum(len(gap[1]) for gap in found.gaps), len(events) - found.equal)

    def test_allocations_of_a_call(self):
        events = [("alloc", 512, 0, 1), ("alloc", 1024, 0, 2), ("free_requested", 1024, 0, 2), ("free_completed", 1024, 0, 2),
                  ("free_completed", 512, 0, 1), ("alloc", 2048, 0, 3)]  # fmt: skip
        calls = [["one", (0, 0), (2, 1)], ["two", (2, 2), (3, 2)]]
        self.assertEqual(gpu_truth.workspaces(events, calls), [["one", [1024], [512]], ["two", [], [2048]]])


class Recording(unittest.TestCase):
    """gpu_truth.every, with programs that do not use PyTorch."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "truth.jsonl"
        self.said = []

    def every(self, names, seconds=100.0, again=False, work=lambda name: {"case": name, "skipped": "made up"}, case_seconds=30, **more):
        return gpu_truth.every(names, self.out, seconds, case_seconds, again, run=work, say=self.said.append, **more)

    def results(self):
        return gpu_truth.read(self.out)[1]

    def test_it_continues(self):
        self.assertEqual(self.every(["a", "b"]), [])
        self.assertEqual(self.every(["a", "b", "c"]), [])
        self.assertEqual([text.split()[2] for text in self.said], ["a:", "b:", "c:"])

    def test_a_torn_line_is_run_again(self):
        self.every(["a", "b"])
        self.out.write_bytes(self.out.read_bytes()[:-9])
        self.assertEqual(list(self.results()), ["a"])
        self.every(["a", "b"])
        self.assertEqual(list(self.results()), ["a", "b"])

    def test_what_failed_is_run_again_when_asked(self):
        def fail(name):
            raise ValueError(name)

        self.every(["a"], work=fail)
        self.assertIn("ended with 1", self.results()["a"]["failed"])
        self.every(["a"])
        self.assertIn("failed", self.results()["a"])
        self.every(["a"], again=True)
        self.assertIn("skipped", self.results()["a"])

    def test_joined_in_one_file(self):
        gpu_truth.add_line(self.out, {"gpu": "H100"})
        self.every(["a", "b"])
        whole = self.out.with_name("whole.json")
        with contextlib.redirect_stdout(io.StringIO()):
            gpu_truth.join(self.out, whole)
        self.assertEqual(gpu_truth.read(whole), gpu_truth.read(self.out))
        self.assertEqual(gpu_truth.read(whole)[0], {"gpu": "H100"})

    def test_no_time_is_left(self):
        now = iter(range(0, 10000, 10))
        left = self.every([*"abcdefghij"], seconds=100, clock=lambda: next(now))
        self.assertTrue(0 < len(left) < 10, left)
        self.assertEqual(self.every([*"abcdefghij"]), [])
        self.assertEqual(list(self.results()), [*"abcdefghij"])

    def test_one_that_hangs_is_ended(self):
        self.every(["a", "b"], work=lambda name: time.sleep(1000) if name == "a" else {"case": name, "skipped": ""}, case_seconds=0.2)
        self.assertIn("took longer", self.results()["a"]["failed"])
        self.assertIn("b", self.results())

    def test_one_that_the_time_cut_is_left(self):
        left = self.every(["a"], seconds=0.4, work=lambda name: time.sleep(1000))
        self.assertEqual((left, self.results()), (["a"], {}))


class Parts(unittest.TestCase):
    """gpu_day.run, with made-up parts and a made-up clock."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.now = 0.0
        self.begun = []
        self.said = []
        self.statuses = {}
        self.takes = {}

    def part(self, name, least=10, most=100):
        return gpu_day.Part(name, f"{name}.jsonl", least, most, lambda setting, seconds: [name, f"{seconds:.0f}"])

    def execute(self, command, part, setting, bound, kept):
        self.begun.append((command[0], bound))
        took = self.takes.get(part.name, 20)
        (setting.out / part.file).write_text(f'{{"part": "{part.name}"}}\n')
        self.now += min(took, bound)
        return None if took > bound else self.statuses.get(part.name, [0]).pop(0) if self.statuses.get(part.name) else 0

    def run_day(self, parts, seconds, out="out"):
        self.begun.clear()
        setting = gpu_day.Setting("python", self.folder / "build", self.folder / out)
        return gpu_day.run(parts, setting, seconds, self.folder / "kept", lambda: self.now, self.execute, self.said.append)

    def names(self):
        return [name for name, _ in self.begun]

    def test_in_order_and_not_twice(self):
        parts = [self.part(name) for name in "abc"]
        self.assertEqual(self.run_day(parts, 560), 0)
        self.assertEqual(self.names(), [*"abc"])
        self.assertEqual(self.run_day(parts, 560), 0)
        self.assertEqual(self.names(), [])

    def test_the_next_command_continues(self):
        parts = [self.part("a"), self.part("b", most=400), self.part("c")]
        self.takes = {"a": 90, "b": 80}
        self.statuses = {"b": [75, 0]}
        self.assertEqual(self.run_day(parts, 200), 75)
        self.assertEqual(self.names(), [*"abc"])
        self.assertEqual(self.run_day(parts, 200, out="another folder"), 0)
        self.assertEqual(self.names(), ["b"])

    def test_a_part_has_its_minutes(self):
        self.takes = {"a": 1000}
        parts = [self.part("a", most=100), self.part("b", least=50), self.part("c", least=1)]
        self.assertEqual(self.run_day(parts, 150), 75)
        self.assertEqual(self.begun, [("a", 100), ("c", 42)])
        self.assertTrue(any(text.startswith("b: not begun") for text in self.said), self.said)
        self.takes = {}
        self.assertEqual(self.run_day(parts, 150), 0)
        self.assertEqual(self.names(), ["a", "b"])

    def test_one_that_never_ends_is_given_up(self):
        self.takes = {"a": 1000}
        parts = [self.part("a"), self.part("b")]
        self.assertEqual([self.run_day(parts, 200) for _ in range(3)], [75, 1, 1])
        self.assertEqual(gpu_day.states(self.folder / "out")["a"], ("cut", 2))

    def test_a_failure_stays_and_is_run_again_when_asked(self):
        parts = [part for part in gpu_day.PARTS if part.name == "live"]
        parts = [gpu_day.Part(part.name, part.file, 1, 50, lambda *_: ["live"]) for part in parts]
        self.statuses = {"live": [1]}
        self.assertEqual(self.run_day(parts, 100), 1)
        out = self.folder / "out"
        (out / "live.jsonl").write_text('{"check": "a", "passed": true}\n{"check": "b", "passed": false}\n{"che')
        self.assertEqual(self.run_day(parts, 100), 1)
        self.assertEqual(self.names(), [])
        gpu_day.again(out, ["live"])
        self.assertEqual((out / "live.jsonl").read_text(), '{"check":"a","passed":true}\n')
        self.assertEqual(self.run_day(parts, 100), 0)
        self.assertEqual(self.names(), ["live"])

    def test_a_program_that_is_missing_fails_alone(self):
        setting = gpu_day.Setting(sys.executable, self.folder / "build", self.folder / "out")
        parts = [part for part in gpu_day.PARTS if part.name == "driver"]
        parts.append(gpu_day.Part("b", "b.txt", 1, 50, lambda *_: [sys.executable, "-c", "print('here')"], stdout=True))
        self.assertEqual(gpu_day.run(parts, setting, 100, self.folder / "kept", say=self.said.append), 1)
        self.assertEqual({name: status for name, (status, _) in gpu_day.states(self.folder / "out").items()}, {"driver": "failed", "b": "passed"})
        self.assertEqual((self.folder / "kept" / "b.txt").read_text(), "here\n")

    def test_a_command_is_ended_and_its_output_kept(self):
        setting = gpu_day.Setting(sys.executable, self.folder / "build", self.folder)
        part = gpu_day.Part("a", "a.txt", 1, 1, lambda *_: [], stdout=True)
        code = "import sys, time; print('begun', flush=True); print('on stderr', file=sys.stderr, flush=True); time.sleep(1000)"
        self.assertIsNone(gpu_day.execute([sys.executable, "-c", code], part, setting, 3, self.folder))
        self.assertEqual((self.folder / "a.txt").read_text(), "begun\n")
        self.assertIn("on stderr", (self.folder / "day.log").read_text())


class Page(unittest.TestCase):
    PAGE = "# Title\n\nWords.\n\n## Not proven\n\n- x\n\n## To fill this page\n\nHow.\n"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, *rows):
        (self.folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def results(self, simulated=None):
        events = gpu_events.pack(made_up(100))
        phase = ["end", 900 << 20, 950 << 20, 1 << 30, 0, 1 << 30, 100 << 20, 120 << 20, 5, 1.0]
        case = {"case": "gpt", "allocated_peak": 100 << 20, "reserved_peak": 120 << 20, "requested_peak": 90 << 20, "step_seconds": [0.5, 0.01],
                "phases": [phase], "calls": [], "events": events}  # fmt: skip
        head = {"gpu": "NVIDIA H100 80GB HBM3", "date": "2026-12-01", "driver": "580.1", "cuda": "13.0", "python": "3.12.1",
                "packages": {"torch": "2.11.0"}, "simulated": simulated}  # fmt: skip
        self.write("truth.jsonl", head, case, {"case": "hf", "skipped": "no module | transformers"})
        changed = [*made_up(100)]
        changed[50] = ("alloc", 1, 0, 1)
        self.write("simulated.jsonl", head, {**case, "events": gpu_events.pack(changed), "reserved_peak": 126 << 20})
        create = {"cuMemCreate": {"median_us": 12.5, "p99_us": 20, "worst_us": 99, "calls": 7}}
        self.write("driver.jsonl", {"part": "pages", "plain": create["cuMemCreate"], "2 MiB": create, "4 MiB": {**create, "handles": 9}},
                   {"part": "limits", "pinned": [{"bytes": 5, "result": "works"}], "nvml": {"used_bytes": 7}})  # fmt: skip
        self.write("allocators.jsonl", {"script": "LoRA", "memory": "all", "allocator": "neap", "failed": "out of memory"})
        self.write("live.jsonl", {"check": "kill", "passed": False, "why": "AssertionError: it\nlives", "measured": [["drain", "5 ms"]]})
        self.write("day.jsonl", {"part": "tests", "status": "failed", "exit": 1, "seconds": 30.0, "date": "2026-12-01 10:00:00"})
        (self.folder / "tests.md").write_text("## 2026-12-01, H100\n\n| what | measured |\n")

    def test_every_result_is_on_the_page(self):
        self.results()
        text = gpu_day_page.section(self.folder, self.folder / "simulated.jsonl")
        for part in ("## 2026-12-01, NVIDIA H100 80GB HBM3, measured", "Driver 580.1, CUDA 13.0, Python 3.12.1; torch 2.11.0",
                     "| tests | failed | 30.0 | 1 |", "### 2026-12-01, H100", "|  | 2 MiB | 4 MiB |\n", "| handles |  | 9 |\n",
                     "| cuMemCreate | 12.50 us, 99 % 20.00, worst 99.0 | 12.50 us", "| plain | 12.50 us, 99 % 20.00, worst 99.0 |\n",
                     "| pinned | bytes 5, result works |\n| nvml: used_bytes | 7 |\n",
                     "| gpt | 100.0 | 120.0 | 900.0 | 780.0 |", "+0.000 %, +5.000 %", "- hf: no module | transformers",
                     "| LoRA | all | neap | out of memory |", "| kill | **failed** | AssertionError: it lives |", "|  | drain | 5 ms |"):
            self.assertIn(part, text)  # fmt: skip
        self.assertRegex(text, r"\| 9\d\.\d+ % \|")

    def test_parts_that_are_missing_are_left_out(self):
        self.write("day.jsonl", {"part": "tests", "status": "failed", "exit": 69, "seconds": 1.0, "date": "2026-12-01 10:00:00"})
        text = gpu_day_page.section(self.folder)
        self.assertIn("## 2026-12-01, a GPU, measured", text)
        self.assertNotIn("###", text)

    def test_it_goes_before_the_last_section_and_replaces_itself(self):
        self.results()
        text = gpu_day_page.section(self.folder)
        filled = gpu_day_page.fill(self.PAGE, text)
        self.assertEqual([line for line in filled.splitlines() if line.startswith("## ")],
                         ["## Not proven", "## 2026-12-01, NVIDIA H100 80GB HBM3, measured", "## To fill this page"])  # fmt: skip
        self.assertEqual(gpu_day_page.fill(filled, text), filled)
        self.assertTrue(filled.startswith("# Title\n\nWords.\n\n## Not proven\n\n- x\n\n## 2026"))
        self.assertTrue(filled.endswith("\n\n## To fill this page\n\nHow.\n"))

    def test_what_was_simulated_does_not_go_in(self):
        self.results(simulated="h100-80gb")
        text = gpu_day_page.section(self.folder)
        with self.assertRaises(SystemExit):
            gpu_day_page.fill(self.PAGE, text)
        self.assertIn("not a measurement", gpu_day_page.fill(self.PAGE, text, real=False))


if __name__ == "__main__":
    unittest.main()
