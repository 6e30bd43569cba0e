#!/usr/bin/env python3
"""check_written.py TOOL NEAP: a trace written in another form is the same trace, as far as the form can express it.
`neap analyze --write` writes files that are read again; Python loads a written snapshot, and so do PyTorch's own
functions if PyTorch is installed."""
import importlib.util
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile

tool, neap = sys.argv[1:3]


def write(source, form, target):
    subprocess.run([tool, source, form, target], check=True)
    return target


def lines(path, *words):
    """What the tool prints about it: the lines that begin with one of the words."""
    printed = subprocess.run([tool, path], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return [line for line in printed if line.split(" ", 1)[0] in (words or ("event", "mark"))]


def bare(events):
    """Events without stacks and times: device, action, address, size and stream."""
    out = []
    for line in events:
        _, device, action, address, size, _, stream, *_ = line.split(" <")[0].split(" ")
        out.append((device, action, address, size, stream))
    return out


def text_trace(seed):
    """Every verb of the text form."""
    random_ = random.Random(seed)
    live = []
    out = ["m begin of it"]
    for number in range(1, 3000):
        size = random_.choice((1, 512, 70000, 2**21, 2**31, 10**12))
        out.append(f"a {number} {size} {random_.randrange(4)}")
        live.append(number)
        if random_.random() < 0.3:
            out.append(f"r {random_.choice(live)} {random_.randrange(4)}")
        while live and random_.random() < 0.5:
            out.append(f"f {live.pop(random_.randrange(len(live)))}")
        if number % 50 == 0:
            out.append(random_.choice(("s", "s", "e", "m evaluation")))
    return "\n".join(out) + "\n"


def snapshot():
    frames = [[{"filename": f"train_{i % 7}.py", "line": i, "name": f"f{i}"}, {"filename": "main.py", "line": 1, "name": "main"}]
              for i in range(400)]  # more names than a recording has room for
    trace = []
    clock = 10**15
    for i in range(1500):
        base = dict(addr=2**40 + i % 300 * 2**21, size=1000 + i % 300, stream=0 if i % 3 else 2**45, frames=frames[i % 400])
        for action in ("segment_alloc", "alloc", "free_requested", "free_completed") if i >= 300 or i % 2 else ("free_completed",):
            clock += i % 2
            trace.append(dict(base, action=action, time_us=clock))
        if i % 100 == 0:
            trace.append(dict(action="oom", device_free=5, size=2**40, stream=0, time_us=clock, frames=frames[0]))
    marks = [dict(stage=stage, name=f"iter {n}", device=0, time_us=10**15 + 500 * n + (stage == "END") * 400)
             for n in range(4) for stage in ("START", "END")]
    return {"segments": [], "device_traces": [trace], "external_annotations": marks}


def main():
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        text = where / "a.txt"
        shot = where / "b.pickle"
        text.write_text(text_trace(1))
        shot.write_bytes(pickle.dumps(snapshot(), protocol=4))

        # Text written as text is unchanged; a recording has everything, and completes frees.
        again = write(text, "text", where / "text.txt")
        assert again.read_text() == text.read_text()
        record = write(text, "recording", where / "text.record")
        kept = [event for event in bare(lines(record, "event")) if event[1] != "free_completed"]
        whole = bare(lines(text, "event"))
        assert [event[:2] + event[2:4] for event in kept] == [event[:2] + event[2:4] for event in whole]
        assert [event[4] for event in kept if event[1] != "empty_cache"] == [event[4] for event in whole if event[1] != "empty_cache"]
        assert [line.split(" ")[2] for line in lines(record, "mark")] == [line.split(" ")[2] for line in lines(text, "mark")]
        assert write(record, "text", where / "text2.txt").read_text().count("\ns\n") == text.read_text().count("\ns\n")

        # Its snapshot has no recorded streams, and keeps the places of steps.
        made = write(text, "snapshot", where / "text.pickle")
        ours = [event for event in bare(lines(made, "event")) if event[1] != "free_completed"]
        assert ours == [event for event in whole if event[1] in ("alloc", "free_requested")]
        steps = [mark for mark in pickle.loads(made.read_bytes())["external_annotations"] if mark["name"] == "step"]
        assert len(steps) == 2 * text.read_text().count("\ns\n") and steps[0]["stage"] == "START"
        assert [mark["time_us"] for mark in steps[2::2]] == [mark["time_us"] for mark in steps[1:-1:2]]

        # A recording keeps a snapshot's events, times and ranges; of a stack it keeps the line, or "other".
        record = write(shot, "recording", where / "shot.record")
        assert [e[:4] for e in bare(lines(record, "event"))] == [e[:4] for e in bare(lines(shot, "event"))]
        times = [[line.split(" <")[0].split(" ")[5] for line in lines(path, "event")] for path in (record, shot)]
        assert times[0] == times[1]
        assert lines(record, "mark") == lines(shot, "mark")
        assert any("<:0:other>" in line for line in lines(record, "event")) and any("<:0:f3>" in line for line in lines(record, "event"))
        for source in (record, shot):  # written in their own form, they are read unchanged
            form = "recording" if source is record else "snapshot"
            assert lines(write(source, form, where / f"again.{form}")) == lines(source)

        # The files that the command writes: the program's line as a tag, compressed text, and what it refuses.
        outputs = {end: where / f"out{end}" for end in (".pickle", ".txt", ".txt.zst", ".record")}
        for path in outputs.values():
            subprocess.run([neap, "analyze", shot, "--write", path], check=True, stdout=subprocess.DEVNULL)
        assert outputs[".txt.zst"].read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
        assert lines(outputs[".txt.zst"]) == lines(outputs[".txt"]) and len(outputs[".txt"].read_text()) > 1000
        assert any("train_3.py:3 f3" in line for line in lines(outputs[".record"], "event"))
        assert lines(outputs[".pickle"]) == lines(shot)
        for bad, code in (("out.json", 64), ("no/such/folder/a.txt", 73)):
            done = subprocess.run([neap, "analyze", shot, "--write", where / bad], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True, check=False)
            assert done.returncode == code and bad in done.stderr, (done.returncode, done.stderr)
            assert not (where / bad).exists()

        if importlib.util.find_spec("torch"):
            from torch.cuda import _memory_viz

            loaded = pickle.loads(outputs[".pickle"].read_bytes())
            assert "segment_alloc" in _memory_viz.trace(loaded) or _memory_viz.trace(loaded)
            _memory_viz.segsum(loaded)
            assert "<html" in _memory_viz.trace_plot(loaded).lower() or _memory_viz.trace_plot(loaded)


main()
