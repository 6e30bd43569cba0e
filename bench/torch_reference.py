#!/usr/bin/env python3
"""Does neap's model of PyTorch's policy do what the policy is documented to do? A second model of it, written for this comparison
alone: slow, of plain lists, without code in common. Random traces (several streams, recorded streams, emptied caches,
devices too small) go through both under random settings; every action must be the same: which block is chosen, which
segment made, mapped, unmapped, given back, and when.

    bench/torch_reference.py [BUILD FOLDER [TRACES [SEED]]]

It does not replace PyTorch itself: it cannot see a misunderstanding that both models share. For that there is
bench/replay_truth.py, over recordings of PyTorch, and tests/gpu.sh. Exits 1 when an action differs.
"""

import pathlib
import random
import subprocess
import sys
import tempfile

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))
build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
KIB = 2**10
MIB = 2**20
UNLIMITED = 2**64


class Block:
    """A piece of a segment: free, allocated, waiting for events, or (expandable) not mapped."""

    def __init__(self, segment, address, size, mapped=True):
        self.segment = segment
        self.address = address
        self.size = size
        self.mapped = mapped
        self.allocated = False
        self.uses = []
        self.events = 0
        self.asked = 0
        self.born = 0

    @property
    def idle(self):
        return not self.allocated and not self.events


class Segment:
    """One range of addresses of a pool and a stream; its blocks in order, without gaps."""

    def __init__(self, address, size, small, stream, expandable):
        self.address = address
        self.small = small
        self.stream = stream
        self.expandable = expandable
        self.blocks = [Block(self, address, size, mapped=not expandable)]

    def join(self, block):
        """Merges the block with neighbours in the same state; returns the merged block."""
        at = self.blocks.index(block)
        for other in (at - 1, at + 1):
            if 0 <= other < len(self.blocks):
                neighbour = self.blocks[other]
                if neighbour.idle and neighbour.mapped == block.mapped:
                    block.address = min(block.address, neighbour.address)
                    block.size += neighbour.size
                    self.blocks.remove(neighbour)
                    at = self.blocks.index(block)
                    if other > at:
                        break
                    return self.join(block)
        return block

    def cut(self, block, size):
        """Cuts off and returns the front of a block; the rest follows it."""
        at = self.blocks.index(block)
        rest = Block(self, block.address + size, block.size - size, block.mapped)
        block.size = size
        self.blocks.insert(at + 1, rest)
        return rest


class Model:
    def __init__(self, settings, memory, delay):
        self.set = settings
        self.memory = memory
        self.delay = delay
        fraction = settings.get("fraction")
        self.allowed = int(fraction * memory) if fraction else None
        self.segments = []
        self.queues = {}
        self.log = []
        self.reserved = 0
        self.next_address = 0x7F0000000000
        self.now = 0
        self.searches = {True: 0, False: 0}
        self.levels = [0] * 3
        self.peaks = [0] * 4  # requested, allocated, active; reserved
        self.retries = self.failures = 0

    # The counters, and the events.

    def tell(self, action, address, size, stream):
        self.log.append(f"{action} {address} {size} {stream}")

    def count(self, *changes):
        self.levels = [a + b for a, b in zip(self.levels, changes)]
        self.peaks = [max(a, b) for a, b in zip(self.peaks, [*self.levels, self.reserved])]

    def reserve(self, size):
        self.reserved += size
        self.count(0, 0, 0)

    # Sizes.

    def rounded(self, size):
        """Rounds up to 512 bytes, or to the next of the steps between two powers of two."""
        steps = self.set["divisions"][max(0, min(15, size.bit_length() - 21))] if size else 0
        if steps > 1 and size > 512 * steps:
            floor = 1 << (size.bit_length() - 1)
            step = floor // steps
            return size if size == floor else -(-size // step) * step
        return max(512, -(-size // 512) * 512)

    @staticmethod
    def segment_size(size):
        if size <= MIB:
            return 2 * MIB
        return 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB

    # Free blocks.

    def free_blocks(self, small, stream=None):
        """The free blocks in the order in which they are tried: stream, size, address."""
        found = [b for s in self.segments if s.small == small and stream in (None, s.stream)
                 for b in s.blocks if b.idle and b.mapped]
        return sorted(found, key=lambda b: (b.segment.stream, b.size, b.address))

    def can_reach(self, block):
        """How far the block reaches together with the unmapped piece behind it."""
        blocks = block.segment.blocks
        after = blocks[blocks.index(block) + 1:][:1]
        return block.size + sum(b.size for b in after if not b.mapped)

    def find(self, small, stream, size):
        if self.allowed and self.set["gc"]:
            self.searches[small] += 1
        fits = [b for b in self.free_blocks(small, stream) if b.size >= size]
        if not fits:
            return None
        best = fits[0]
        if self.set["expandable"]:
            for other in fits[1:]:
                if self.can_reach(other) >= self.can_reach(best):
                    break
                best = other
        limit = self.set["max_split"]
        if size < limit <= best.size or (size >= limit and best.size >= size + 20 * MIB):
            return None
        return best

    def whole(self, block):
        return len(block.segment.blocks) == 1

    # The driver.

    def give_back(self, block):
        self.tell("segment_free", block.address, block.size, block.segment.stream)
        self.segments.remove(block.segment)
        self.reserved -= block.size

    def grow(self, small, stream, size):
        wanted = self.segment_size(size)
        if self.allowed is not None and self.reserved + wanted > self.allowed:
            return None
        if self.set["expandable"]:
            return self.expand(small, stream, size)
        if wanted > self.memory - self.reserved:
            return None
        segment = Segment(self.next_address, wanted, small, stream, False)
        self.next_address += wanted
        self.segments.append(segment)
        self.tell("segment_alloc", segment.address, wanted, stream)
        self.reserve(wanted)
        return segment.blocks[0]

    def expand(self, small, stream, size):
        block = self.room(small, stream, size)
        segment = block.segment
        if not block.mapped:
            block = self.map(block, min(block.size, size))
        while block and block.size < size:
            after = segment.blocks[segment.blocks.index(block) + 1]
            block = self.map(after, min(after.size, size - block.size))
        return block

    def room(self, small, stream, size):
        """The first place, by address, from which idle blocks, mapped or not, reach far enough."""
        unmapped = [b for s in self.segments if s.small == small and s.stream == stream for b in s.blocks if not b.mapped]
        for block in sorted(unmapped, key=lambda b: b.address):
            blocks = block.segment.blocks
            at = blocks.index(block)
            if at and blocks[at - 1].idle:
                at -= 1
            reach = 0
            for other in blocks[at:]:
                if not other.idle or reach >= size:
                    break
                reach += other.size
            if reach >= size:
                return blocks[at]
        page = 2 * MIB if small else 20 * MIB
        length = -(-(self.memory + self.memory // 8) // page) * page
        segment = Segment(self.next_address, length, small, stream, True)
        self.next_address += length
        self.segments.append(segment)
        return segment.blocks[0]

    def map(self, block, size):
        segment = block.segment
        page = 2 * MIB if segment.small else 20 * MIB
        size = -(-size // page) * page
        if size > self.memory - self.reserved:
            return None
        if size < block.size:
            segment.cut(block, size)
        address = block.address
        block.mapped = True
        block = segment.join(block)
        block.born = self.searches[segment.small]
        self.tell("segment_map", address, size, segment.stream)
        self.reserve(size)
        return block

    def unmap(self, block):
        segment = block.segment
        page = 2 * MIB if segment.small else 20 * MIB
        begin = -(-(block.address - segment.address) // page) * page + segment.address
        end = (block.address + block.size - segment.address) // page * page + segment.address
        if begin >= end:
            return
        if begin > block.address:
            block = segment.cut(block, begin - block.address)
        if end < block.address + block.size:
            segment.cut(block, end - block.address)
        block.mapped = False
        self.tell("segment_unmap", begin, end - begin, segment.stream)
        self.reserved -= end - begin
        if len(segment.join(block).segment.blocks) == 1:
            self.segments.remove(segment)

    # When memory is given back, and how much.

    def release_all(self):
        for queue in list(self.queues.values()):
            for _, block in queue:
                self.event_over(block)
        self.queues.clear()
        for small in (False, True):
            for block in self.free_blocks(small):
                if not block.segment.expandable and self.whole(block):
                    self.give_back(block)
            for block in self.free_blocks(small):
                if block.segment.expandable:
                    self.unmap(block)

    def release_oversize(self, small, stream, size):
        limit = self.set["max_split"]
        if limit == UNLIMITED:
            return False
        wanted = max(size, limit)
        released = 0
        blocks = self.free_blocks(small, stream)
        enough = [b for b in blocks if b.size >= wanted]
        if enough:
            self.give_back(enough[0])
            return True
        for block in reversed(blocks):
            if block.size < limit or released >= wanted:
                break
            released += block.size
            self.give_back(block)
        return released >= wanted

    def collect(self):
        """Frees unsplit large blocks that were unused for longer than the average, until enough is free."""
        threshold = int(self.set["gc"] * self.allowed)
        if self.reserved <= threshold:
            return
        target = self.reserved - threshold
        reclaimed = 0
        freed = True
        while reclaimed < target and freed:
            old = [b for b in self.free_blocks(False) if self.whole(b)]
            if not old:
                break
            ages = [self.searches[False] - b.born for b in old]
            average = sum(ages) / len(ages)
            freed = False
            for block, age in zip(old, ages):
                if age >= average:
                    reclaimed, freed = reclaimed + block.size, True
                    self.give_back(block)

    # What a program does.

    def alloc(self, asked, stream):
        for name in list(self.queues):
            queue = self.queues[name]
            while queue and queue[0][0] <= self.now:
                self.event_over(queue.pop(0)[1])
            if not queue:
                del self.queues[name]
        size = self.rounded(asked)
        small = size <= MIB
        block = self.find(small, stream, size)
        if not block:
            if self.allowed and self.set["gc"]:
                self.collect()
            block = self.grow(small, stream, size)
        if not block and self.release_oversize(small, stream, size):
            block = self.grow(small, stream, size)
        if not block:
            self.release_all()
            self.retries += 1
            block = self.grow(small, stream, size)
        if not block:
            self.failures += 1
            self.tell("oom", self.memory - self.reserved, size, stream)
            return None
        rest = block.size - size
        if rest >= 512 if small or self.set["expandable"] else size < self.set["max_split"] and rest > MIB:
            block.segment.cut(block, size).born = self.searches[small]
        block.allocated = True
        block.asked = asked
        self.tell("alloc", block.address, asked, stream)
        self.count(asked, block.size, block.size)
        return block

    def free(self, block):
        self.tell("free_requested", block.address, block.asked, block.segment.stream)
        self.count(0, -block.size, 0)
        block.allocated = False
        for stream in block.uses:
            block.events += 1
            self.queues.setdefault(stream, []).append((self.now + self.delay, block))
        block.uses = []
        if not block.events:
            self.over(block)

    def event_over(self, block):
        block.events -= 1
        if not block.events:
            self.over(block)

    def over(self, block):
        self.tell("free_completed", block.address, block.asked, block.segment.stream)
        self.count(-block.asked, 0, -block.size)
        block.segment.join(block).born = self.searches[block.segment.small]

    def record_stream(self, block, stream):
        if stream != block.segment.stream and stream not in block.uses:
            block.uses.append(stream)


def random_trace(random_, count):
    """Lines of a text trace: steps whose sizes come from a few, or from anywhere; several streams, or one."""
    streams = random_.choice((1, 1, 2, 4))
    common = [random_.choice((512, 3000, 70 * KIB, MIB, MIB + 1, 5 * MIB, 10 * MIB, 24 * MIB, 150 * MIB)) for _ in range(6)]
    live = []
    lines = []
    number = 0
    while len(lines) < count:
        verb = random_.random()
        if verb < 0.52 or not live:
            size = random_.choice(common) if random_.random() < 0.6 else int(2 ** random_.uniform(3, 27.5)) + 1
            number += 1
            live.append(number)
            lines.append(("a", number, size, random_.randrange(streams)))
        elif verb < 0.93:
            lines.append(("f", live.pop(random_.randrange(len(live)) if random_.random() < 0.5 else -1)))
        elif verb < 0.985 and streams > 1:
            lines.append(("r", random_.choice(live), random_.randrange(streams)))
        elif verb > 0.995:
            lines.append(("e",))
    return lines


def random_settings(random_):
    """As a text, and as the second model wants them."""
    settings = {"expandable": False, "max_split": UNLIMITED, "gc": 0, "divisions": [0] * 16, "fraction": None}
    texts = []
    if random_.random() < 0.4:
        settings["expandable"] = True
        texts.append("expandable_segments:True")
    elif random_.random() < 0.5:
        settings["max_split"] = random_.choice((20, 32, 64, 128)) * MIB
        texts.append(f"max_split_size_mb:{settings['max_split'] // MIB}")
    if random_.random() < 0.4:
        steps = random_.choice((2, 4, 8, 16))
        settings["divisions"] = [steps] * 16
        texts.append(f"roundup_power2_divisions:{steps}")
    if random_.random() < 0.5:
        settings["fraction"] = random_.choice((0.5, 0.75, 0.9))
        texts.append(f"per_process_memory_fraction:{settings['fraction']}")
        if random_.random() < 0.7 and not settings["expandable"]:
            settings["gc"] = random_.choice((0.25, 0.5, 0.8))
            texts.append(f"garbage_collection_threshold:{settings['gc']}")
    return ",".join(texts), settings


def run_model(lines, settings, memory, delay):
    model = Model(settings, memory, delay)
    live = {}
    for number, line in enumerate(lines):
        model.now = number
        if line[0] == "a":
            live[line[1]] = model.alloc(line[2], line[3])
        elif line[0] == "e":
            model.release_all()
        elif live[line[1]]:
            if line[0] == "f":
                model.free(live.pop(line[1]))
            else:
                model.record_stream(live[line[1]], line[2])
    sums = f"sums {' '.join(map(str, model.peaks))} {model.retries} {model.failures}"
    return model.log + [sums], model


def in_order(log):
    """Sorts frees that complete at one moment: they have no order."""
    out = []
    run = []
    for line in log:
        if line.startswith("free_completed"):
            run.append(line)
            continue
        out += sorted(run) + [line]
        run = []
    return out + sorted(run)


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    random_ = random.Random(seed)
    different = 0
    actions = 0
    failures = 0
    combinations = set()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.txt"
        for number in range(count):
            lines = random_trace(random_, 500)
            text, settings = random_settings(random_)
            memory = random_.choice((200, 400, 800, 1600, 8000)) * MIB
            delay = random_.choice((0, 0, 7, 60))
            path.write_text("".join(" ".join(map(str, line)) + "\n" for line in lines))
            said = subprocess.run([build / "bench" / "torch_log", path, text, str(memory), str(delay)], check=True,
                                  stdout=subprocess.PIPE, text=True).stdout.splitlines()
            log, model = run_model(lines, settings, memory, delay)
            said, log = in_order(said), in_order(log)
            actions += len(log) - 1
            failures += model.failures
            combinations.add((text, memory, delay))
            if said != log:
                different += 1
                at = next((i for i, (a, b) in enumerate(zip(said, log)) if a != b), min(len(said), len(log)))
                print(f"trace {number}, settings '{text}', {memory // MIB} MiB, delay {delay}: action {at} is "
                      f"'{said[at] if at < len(said) else 'none'}', the second model's '{log[at] if at < len(log) else 'none'}'")
    print(f"seed {seed}: {count - different} of {count} traces the same, action by action ({actions} actions, {failures} requests "
          f"that failed, {len(combinations)} combinations of settings, memory and delay)")
    sys.exit(different > 0)


main()
