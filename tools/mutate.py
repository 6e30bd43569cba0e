#!/usr/bin/env python3
"""mutate.py [FOLDER] [NAME...]: do the tests notice?

Breaks the code in one place at a time, as listed below, builds, and runs the tests that ought to fail. A mutation that
no test notices is a survivor: add the test, not an excuse. Works on a copy of the sources, so that nothing of the tree
changes; FOLDER (default build-mutate) keeps the copy and its build. With names only those mutations are tried. Exits 1
when one survived, or no longer fits the code.
"""
import pathlib
import shutil
import subprocess
import sys

# name, file, code, broken code, tests (meson's names)
MUTATIONS = [
    ("a pool's release leaves its arena clean", "src/alloc/arena.c", "alloc->dirty = true;", "alloc->dirty = alloc->dirty;",
     ["alloc"]),
    ("a plan begins that is not worth it", "src/alloc/plan.c", "if (!plan->bytes || strain < plan->bytes / WORTH)",
     "if (!plan->bytes || strain == plan->bytes / WORTH + 1)", ["plan"]),
    ("a loop within a step is planned", "src/alloc/plan.c", "if (!is_step(log, length, &levels))",
     "if (!is_step(log, length, &levels) && !length)", ["plan"]),
    ("a step does not begin where least is live", "src/alloc/plan.c", "lowest = item->level < levels.low ? i : lowest;", "", ["plan"]),
    ("a plan keeps the shorter of two lives", "src/alloc/plan.c", "return to && others > to ? others : to;", "return to;", ["plan"]),
    ("a lost plan never finds its way", "src/alloc/track.c", "if (distance < nearest && follows_run(track, place))",
     "if (nearest == 0 && follows_run(track, place))", ["plan"]),
    ("a planned block takes a place that is not free", "src/alloc/planned.c", "if (block->state != NEAP_BLOCK_CACHED)", "if (false)",
     ["alloc_plan"]),
    ("a plan does not wait for another stream", "src/alloc/planned.c", "foreign |= block_stream(block) && block_stream(block) != stream;",
     "", ["alloc_plan"]),
    ("a plan's region is lent to nobody", "src/alloc/planned.c", "if (!alloc->region || !(last || (large && neap_plan_lost(alloc->plan))))",
     "if (!alloc->region || !last || large)", ["alloc_plan"]),
    ("a layout's search ends at half of its work", "src/alloc/layout.c", "search->work >= search->most_work;",
     "search->work >= search->most_work / 2;", ["layout"]),
    ("a layout begins with one order", "src/alloc/layout.c", "for (size_t i = 0; i < ORDERS && (i == 0", "for (size_t i = 0; i < 1 && (i == 0",
     ["layout"]),
    ("a layout's skyline fills the highest valley", "src/alloc/layout.c", "valleys[i].height < valleys[lowest].height",
     "valleys[i].height > valleys[lowest].height", ["layout"]),
    ("a segment of just the limit is not released", "src/replay/replay_release.c",
     "is_release(&event) && event.size >= limit && event.size <= last", "is_release(&event) && event.size > limit && event.size <= last",
     ["recording", "replay_exact"]),
    ("a restart drops rungs that were asked for", "src/train/session.c", "now->rungs & ~before.rungs ||", "0 ||", ["prevent"]),
    ("the warm-up ends at the first jump", "src/train/leak.c", "\t\t\twarm_up = i;", "\t\t\twarm_up = warm_up ? warm_up : i;", ["leak"]),
    ("a frame of just the maximum is refused", "src/proto/frame.c", "length > NEAP_FRAME_PAYLOAD_MAX",
     "length >= NEAP_FRAME_PAYLOAD_MAX", ["frame"]),
    ("a card takes another device's steps", "src/analyze/oom_journal.c", "if (event->device != record->journal[at].device)\n\t\t\tcontinue;\n\t\tif (event->kind == NEAP_EVENT_SPLIT)",
     "if (event->kind == NEAP_EVENT_SPLIT)", ["oom"]),
    ("a leak is sought in the steps of all devices", "src/analyze/lanes.c", "if (session->device != device)\n\t\t\tcontinue;", "",
     ["run"]),
    ("sessions that overlap share a lane", "src/analyze/lanes.c", "lanes->items[lane].last_ns >= session->first_ns", "false", ["run"]),
    ("a rung of another device begins the floor", "src/analyze/run.c", "floor_changes(event) && event->device == device_of(track)",
     "floor_changes(event)", ["run"]),
    ("a request is passed over by another device's step", "src/analyze/run.c", "&& event->device == request->device", "", ["run"]),
    ("the curve mixes devices", "src/analyze/run.c", "if (event->device == curve->device)\n\t\t\tgive_held", "if (event->device < 99)\n\t\t\tgive_held", ["run"]),
    ("bytes taken again are counted again", "src/analyze/run.c", "facts->cleanup_freed_bytes -= again;", ";", ["run"]),
    ("what a step takes again is not warned of", "src/train/session.c", "train->futile[reason] = futile ?", "train->futile[reason] = !futile ?",
     ["prevent"]),
    ("no rung is left, it says, before they are taken", "src/train/levels.c", "bool at_end = !rung_left &&", "bool at_end =", ["prevent"]),
    ("a limit is named without the rest of the step", "src/analyze/oom_replay.c", "if (room.bytes > replays->smallest_bytes)",
     "if (false)", ["cards"]),
    ("a lower bound does not say so", "src/analyze/fix.c", 'whole ? "" : "a lower bound: ", whole', '"", whole', ["oom", "oom_cards"]),
    ("the context of the first of two allocators counts", "src/proto/page.c", "if (one->context_bytes > sum.context_bytes)", "if (false)",
     ["page"]),
    ("a peer with waiting bytes gives way", "src/agent/server.c", "if (still_ours(&client->socket) && poll(&peer, 1, 0) > 0)",
     "if (poll(&peer, 1, 0) < 0)", ["server"]),
    ("an overtaken event is kept", "src/trace/record.c", "if (written - ring->indices[i] > ring->capacity)",
     "if (written < ring->indices[i])", ["record"]),
    ("a wrapped ring has gaps at its edge", "src/trace/record.c", "if (!ring->runs || ring->written <= ring->capacity)",
     "if (ring->capacity)", ["alloc_front"]),
    ("slots of an earlier recorder are written", "src/trace/recorder.c", "run->owner != recorder->identity ||", "!run->owner ||",
     ["record_runs"]),
    ("a lane's events keep the time before the core's", "src/alloc/front.c", "lane->time.left = 0;", ";", ["alloc_front"]),
    ("a lane is taken while its owner is at work", "src/alloc/lane_lock.c",
     "while (__atomic_load_n(&lane->seats[i].busy, __ATOMIC_ACQUIRE))",
     "while (__atomic_load_n(&lane->seats[i].busy, __ATOMIC_ACQUIRE) && false)", ["alloc_front"]),
    ("a cut ring loses its last event", "src/trace/record_cut.c", "written < capacity ? written + 1", "written < capacity ? written", ["record"]),
    ("a recording is cut under its process", "src/trace/record_cut.c", "if (neap_process_alive((pid_t)header.pid, header.start_ticks))",
     "if (false)", ["record"]),
    ("a process that no look met is an outsider", "src/run/supervise.c", "\tneap_facts_meet_recorded(run);\n", "", ["recordings"]),
    ("a run that is still going is pruned", "src/series/prune_apply.c", "if (failed && !neap_owner_is_needed(failed))", "if (false)", ["prune"]),
    ("pruning follows a link", "src/series/prune_apply.c", "O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC", "O_RDONLY | O_DIRECTORY | O_CLOEXEC",
     ["prune"]),
    ("a series that was resumed is pruned", "src/series/prune_apply.c", "else if (!neap_journal_is_finished(held->journal))", "else if (false)",
     ["prune"]),
    ("a flush leaves blocks that it could give back", "src/replay/torch_blocks.c", "return !block_is_split(block);", "return false;",
     ["torch_policy", "torch_random", "replay_exact"]),
    ("a part weighs as if all were equal", "src/train/split.c", "(double)part.samples / (double)samples", "1.0 / (double)parts",
     ["ladder", "charlm_gradients_double"]),
    ("parts overlap", "src/train/split.c", "index < larger ? index : larger", "index", ["ladder"]),
    ("smaller parts begin one too late", "src/train/session.c", "train->now.split.accumulate - smaller)",
     "train->now.split.accumulate - smaller + 1)", ["session"]),
    ("smaller parts are taken for larger ones", "src/analyze/step_model.c", "return event->time_ns > builder->smaller_ns &&",
     "return false &&", ["advice"]),
    ("a forecast outlives its step", "src/analyze/run.c", "event->step.number > facts->memory_ends_high_step", "false", ["run"]),
]


def run(command, folder, log):
    return subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, check=False).returncode


def copy_sources(folder):
    names = subprocess.run(["git", "ls-files", "-z"], check=True, stdout=subprocess.PIPE).stdout.decode().split("\0")
    for name in filter(None, names):
        to = folder / name
        if not pathlib.Path(name).is_file() or (to.is_file() and to.read_bytes() == pathlib.Path(name).read_bytes()):
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(name, to)


def notices(folder, tests, log):
    """Whether the broken code fails to build, or one of the tests fails."""
    if run(["ninja", "-C", "build", "--quiet"], folder, log) != 0:
        return True
    return run(["meson", "test", "-C", "build", "--no-rebuild", *tests], folder, log) != 0


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build-mutate")
    names = sys.argv[2:]
    folder.mkdir(exist_ok=True)
    survivors = 0
    with open(folder / "log", "w", encoding="utf-8") as log:
        copy_sources(folder)
        if not (folder / "build").is_dir() and run(["meson", "setup", "build", "-Dwerror=false"], folder, log) != 0:
            sys.exit(f"mutate.py: the copy cannot be set up: see {folder}/log")
        chosen = [m for m in MUTATIONS if not names or m[0] in names]
        tests = sorted({test for m in chosen for test in m[4]})
        if notices(folder, tests, log):
            sys.exit(f"mutate.py: the tests fail without a mutation: see {folder}/log")
        for name, path, code, broken, tests in chosen:
            file = folder / path
            text = file.read_text(encoding="utf-8")
            if text.count(code) != 1:
                print(f"STALE     {name}: {path} has that code {text.count(code)} times", flush=True)
                survivors += 1
                continue
            file.write_text(text.replace(code, broken), encoding="utf-8")
            try:
                noticed = notices(folder, tests, log)
            finally:
                file.write_text(text, encoding="utf-8")
            print(f"{'noticed ' if noticed else 'SURVIVED'}  {name}", flush=True)
            survivors += not noticed
    print(f"{len(chosen) - survivors} of {len(chosen)} mutations noticed")
    sys.exit(survivors > 0)


if __name__ == "__main__":
    main()
