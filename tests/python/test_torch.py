"""The package on a real PyTorch, without a device: what keeps tensors alive, moving and saving, and Training with
injected out-of-memory errors."""

import collections
import copy
import ctypes
import dataclasses
import gc
import logging
import os
import pathlib
import pickle
import sys
import tempfile
import threading
import typing
import unittest
import unittest.mock
import warnings
import weakref

warnings.filterwarnings("ignore")
import neap
import torch
import torch.utils.checkpoint
from neap import _abi, _efficient, _graphs, _growth, _sources, memory, moving
from torch import nn

CPU = ("cpu",)
kept_in_a_global = []


def named(result, columns):
    """The finding about the tensor with this many columns."""
    (item,) = [item for item in result if item.shape[-1:] == (columns,)]
    return item


class Node:
    pass


def make_cycle(columns):
    node = Node()
    node.itself = node
    node.payload = torch.zeros(64, columns)


def fail_with(columns):
    held_by_the_traceback = torch.zeros(64, columns)
    raise ValueError(f"with {len(held_by_the_traceback)} rows")


def make_closure(columns):
    captured = torch.zeros(64, columns)
    return lambda: captured


class Lingering(unittest.TestCase):
    def setUp(self):
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        self.addCleanup(kept_in_a_global.clear)

    def test_each_holder_is_named_and_what_may_be_released_is(self):
        try:
            fail_with(1001)
        except ValueError as error:
            self.saved = error
        self.closure = make_closure(1002)
        make_cycle(1003)
        kept_in_a_global.append({"deep": (torch.zeros(64, 1004),)})
        result = neap.clear_gpu_memory(force=True, device_types=CPU).lingering
        traceback, closure, cycle, in_global = (named(result, 1001 + n) for n in range(4))
        self.assertEqual((traceback.kind, traceback.released), ("traceback", True))
        self.assertIn("local variable held_by_the_traceback of fail_with (test_torch.py:", traceback.holders[0])
        self.assertEqual((closure.kind, closure.released), ("closure", False))
        self.assertEqual(closure.holders, ("closure variable captured of make_closure.<locals>.<lambda>",))
        self.assertEqual((cycle.kind, cycle.released), ("cycle", True))
        self.assertEqual(cycle.holders, ("a reference cycle through Node object.payload",))
        self.assertEqual((in_global.kind, in_global.released), ("global", False))
        self.assertEqual(in_global.holders, (f"global kept_in_a_global[0]['deep'][0] of module {__name__}",))
        self.assertEqual(in_global.bytes, 64 * 1004 * 4)
        self.assertEqual(str(in_global)[:41], "251 KiB float32 [64, 1004] on cpu: global")
        self.assertIn("with 64 rows", str(self.saved))
        self.assertIsNotNone(self.saved.__traceback__)
        again = [item.shape[-1] for item in neap.lingering(CPU)]
        self.assertEqual([n for n in (1001, 1003) if n in again], [])
        self.assertEqual(sorted(n for n in (1002, 1004) if n in again), [1002, 1004])

    def test_models_and_optimizers_are_named_once(self):
        global many_layers, its_optimizer
        many_layers = nn.Sequential(*(nn.Linear(64, 65) for _ in range(30)))
        its_optimizer = torch.optim.Adam(many_layers.parameters())
        sum(layer(torch.zeros(2, 64)).sum() for layer in many_layers).backward()
        its_optimizer.step()
        kept_in_a_global.extend(torch.zeros(3, 77) for _ in range(100))
        found = neap.clear_gpu_memory(force=True, device_types=CPU).lingering
        lines = [str(item) for item in found]
        module = f"module {__name__}"
        for wanted in (
            f"in 60 tensors, parameters of Sequential on cpu: global many_layers of {module}",
            f"in 180 tensors, state of Adam on cpu: global its_optimizer of {module}",
            f"90.2 KiB in 100 tensors, float32 [3, 77] on cpu: global kept_in_a_global[0] of {module} (kept)",
        ):
            self.assertEqual(sum(wanted in line for line in lines), 1, (wanted, lines))
        bytes_of = sum(p.nbytes for p in many_layers.parameters())
        self.assertEqual([item.bytes for item in found if item.what.startswith("parameters of Sequential")], [bytes_of])
        self.assertEqual([item.count for item in found if item.what.startswith("gradients of")], [60])
        kept_in_a_global.clear()
        del many_layers, its_optimizer

    def test_the_last_traceback_of_an_interactive_session(self):
        try:
            fail_with(1005)
        except ValueError as error:
            sys.last_traceback = error.__traceback__
        self.addCleanup(delattr, sys, "last_traceback")
        self.assertTrue(named(neap.clear_gpu_memory(force=True, device_types=CPU).lingering, 1005).released)

    def test_an_attribute_and_a_class(self):
        self.box = Node()
        self.box.tensor = torch.zeros(64, 1006)
        Node.shared = torch.zeros(64, 1007)
        self.addCleanup(delattr, Node, "shared")
        found = neap.lingering(CPU)
        self.assertTrue(any(".box.tensor" in h for h in named(found, 1006).holders), named(found, 1006))
        self.assertEqual((named(found, 1007).kind, named(found, 1007).holders[0]), ("class", "attribute shared of class Node"))

    def test_looking_pins_nothing(self):
        def inner():
            tensor = torch.zeros(64, 1008)
            found = named(neap.lingering(CPU), 1008)
            self.assertIn(found.kind, ("frame", "unknown"))  # before Python 3.13 a running frame's variables are not seen
            ref = weakref.ref(tensor)
            del tensor
            return ref()

        self.assertIsNone(inner())

    def test_a_generator_is_not_ended(self):
        def numbers():
            held = torch.zeros(64, 1009)
            try:
                raise ValueError
            except ValueError as error:
                self.saved = error
            yield 1
            yield held.shape[1]

        steps = numbers()
        next(steps)
        self.assertFalse(named(neap.clear_gpu_memory(force=True, device_types=CPU).lingering, 1009).released)
        self.assertEqual(next(steps), 1009)

    def test_running_functions_keep_their_variables(self):
        mine = torch.ones(64, 1010)
        try:
            raise ValueError
        except ValueError as error:
            self.saved = error
        self.assertFalse(named(neap.clear_gpu_memory(force=True, device_types=CPU).lingering, 1010).released)
        self.assertEqual(mine.sum(), 64 * 1010)


class Graphs(unittest.TestCase):
    """Tensors that autograd graphs keep, with 64 rows: no Python object holds them."""

    def setUp(self):
        gc.collect()
        self.addCleanup(kept_in_a_global.clear)
        self.weight = torch.randn(8, 1011, requires_grad=True)
        self.x = torch.randn(64, 8)

    def forward(self):
        return (self.x @ self.weight).exp().sigmoid()  # both results are saved

    def lingering(self, of=None):
        return [item for item in neap.lingering(CPU) if item.saved and (of is None or item.shape == of)]

    def test_a_kept_loss_is_named_with_what_its_graph_keeps(self):
        for _ in range(3):
            kept_in_a_global.append(self.forward().sum())
        found = self.lingering()
        self.assertEqual([(item.shape, item.bytes, item.saved) for item in found], [((), 4, 2 * 64 * 1011 * 4)] * 3)
        self.assertEqual({item.kind for item in found}, {"global"})
        holders = sorted(item.holders for item in found)
        self.assertEqual(holders, [(f"global kept_in_a_global[{n}] of module {__name__}",) for n in range(3)])
        text = f"4 B float32 [] on cpu and 506 KiB saved for its backward pass: global kept_in_a_global[0] of module {__name__} (kept)"
        self.assertIn(text, [str(item) for item in found])
        released = [item for item in neap.clear_gpu_memory(force=True, device_types=CPU).lingering if item.saved]
        self.assertEqual([(item.released, item.count) for item in released], [(False, 3)])
        for loss in kept_in_a_global:
            loss.backward()
        self.assertEqual(self.lingering(), [])  # the backward pass has freed it

    def test_what_several_graphs_share_is_counted_once(self):
        trunk = self.forward()
        kept_in_a_global.append(trunk.exp().sum())
        kept_in_a_global.append((trunk + 2).exp().sum())
        one = 64 * 1011 * 4
        for _ in range(2):  # the search makes Python objects of what only the graphs keep: that changes nothing
            self.assertEqual([(item.shape, item.saved) for item in self.lingering()], [((), 3 * one), ((), one)])
        kept_in_a_global.append(trunk)
        found = {item.shape: item for item in self.lingering()}
        self.assertEqual(found[(64, 1011)].saved, one)  # beside its own bytes: the exp before it
        self.assertEqual(found[()].saved, one)

    def test_hooks_that_pack_are_not_run(self):
        unpacked = []

        def unpack(packed):
            unpacked.append(1)
            return packed

        with torch.autograd.graph.saved_tensors_hooks(torch.Tensor.clone, unpack):
            kept_in_a_global.append(self.forward().sum())
        model = nn.Linear(8, 1011)
        runs = []
        model.register_forward_hook(lambda *_: runs.append(1))
        kept_in_a_global.append(torch.utils.checkpoint.checkpoint(model, self.x, use_reentrant=False).sum())
        found = self.lingering()
        self.assertEqual((len(unpacked), len(runs)), (0, 1))
        if _graphs.tells(torch):
            self.assertEqual([item.saved for item in found if item.shape == ()], [64 * 8 * 4 + 2 * 64 * 1011 * 4])
        kept_in_a_global[0].backward()
        self.assertGreater(len(unpacked), 0)

    def test_functions_of_ones_own_and_lists_of_tensors(self):
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x * 2, None)
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                return gradient * 2

        kept_in_a_global.append(Double.apply(self.weight).sum())
        kept_in_a_global.append(self.weight[torch.arange(8).repeat(500)].sum())
        self.assertEqual(sorted(item.saved for item in self.lingering()), [8 * 500 * 8, 8 * 1011 * 4])

    def test_not_while_a_backward_pass_runs(self):
        kept_in_a_global.append(self.forward().sum())
        inside = []
        loss = self.forward()
        loss.register_hook(lambda gradient: inside.append(self.lingering()))
        loss.sum().backward()
        self.assertEqual((inside, len(self.lingering(()))), ([[]], 1))
        begun = threading.Event()
        done = threading.Event()
        other = self.forward()
        other.register_hook(lambda gradient: (begun.set(), done.wait(60))[:0] or None)
        thread = threading.Thread(target=other.sum().backward)
        thread.start()
        begun.wait(60)
        found = self.lingering(())
        done.set()
        thread.join()
        self.assertEqual((found, len(self.lingering(()))), ([], 1))

    def test_tensors_that_share_a_storage(self):
        cache = self.cache = {}
        for step in range(2):
            out = torch.zeros(64, 1012 + step)
            cache[step] = out.detach()
        found = named(neap.lingering(CPU), 1013)  # `out` is a variable of this very function
        self.assertIn(".cache[1]", found.holders[0])
        found = named(neap.lingering(CPU), 1012)
        self.assertIn(".cache[0]", found.holders[0])
        self.assertEqual(found.bytes, 64 * 1012 * 4)


class Point(typing.NamedTuple):
    x: object
    y: object


@dataclasses.dataclass
class Record:
    tensor: object
    text: str


class Moving(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def test_nested_containers(self):
        shared = torch.ones(3, requires_grad=True) * 2
        value = {
            "list": [shared, 1, "text", None],
            "tuple": (shared, {"deep": shared}),
            "point": Point(shared, 2),
            "record": Record(shared, "t"),
            "default": collections.defaultdict(list, a=shared),
            "ordered": collections.OrderedDict(b=shared),
        }
        moved = neap.safe_tensor_to_cpu(value)
        found = [moved["list"][0], moved["tuple"][0], moved["tuple"][1]["deep"], moved["point"].x, moved["record"].tensor]
        found += [moved["default"]["a"], moved["ordered"]["b"]]
        self.assertTrue(all(tensor is found[0] for tensor in found))  # shared tensors are still shared
        self.assertFalse(found[0].requires_grad)
        self.assertIs(found[0].grad_fn, None)
        self.assertTrue(torch.equal(found[0], shared))
        self.assertEqual((type(moved["default"]), type(moved["ordered"])), (collections.defaultdict, collections.OrderedDict))
        self.assertEqual((moved["list"][1:], moved["point"].y, moved["record"].text), ([1, "text", None], 2, "t"))
        self.assertTrue(shared.requires_grad)
        self.assertEqual(neap.safe_tensor_to_cpu("text"), "text")

    def test_what_has_no_tensor_is_itself_and_what_holds_itself_ends(self):
        value = {"size": torch.Size([1, 2]), "user": collections.UserDict(a=1)}
        self.assertIs(neap.safe_tensor_to_cpu(value), value)
        circle = [torch.ones(2, requires_grad=True)]
        circle.append(circle)
        self.assertFalse(neap.safe_tensor_to_cpu(circle)[0].requires_grad)
        user = neap.safe_tensor_to_cpu(collections.UserDict(a=circle[0]))
        self.assertEqual((type(user), user["a"].requires_grad), (collections.UserDict, False))

    def test_tied_weights_stay_tied_and_a_state_keeps_its_versions(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
        model[2].weight = model[0].weight
        state = moving._Mover(lambda tensor: tensor.detach().clone()).move(model.state_dict())  # as from a device
        self.assertIs(state["0.weight"], state["2.weight"])
        self.assertEqual(state._metadata["1"], {"version": 2})
        self.assertEqual(len(moving._Mover(lambda t: t.clone()).move([torch.ones(4)[:2], torch.ones(4)[2:]])), 2)

    def test_a_view_that_reads_the_same_bytes_otherwise_is_another(self):
        number = torch.randn(3, dtype=torch.complex64)
        moved = neap.safe_tensor_to_cpu([number, number.conj(), number.imag, number.conj().imag])
        for tensor, expected in zip(moved, (number, number.conj(), number.imag, -number.imag)):
            self.assertTrue(torch.equal(tensor.resolve_conj().resolve_neg(), expected.resolve_conj().resolve_neg()))

    def test_putting_away_that_fails_half_way_leaves_what_was(self):
        model = nn.Linear(3, 2)
        model(torch.ones(1, 3)).sum().backward()
        gradients = [p.grad for p in model.parameters()]
        with unittest.mock.patch.object(nn.Module, "buffers", lambda self: 1 / 0), self.assertRaises(ZeroDivisionError):
            with neap.offloaded(model):
                self.fail("it is not entered")
        self.assertTrue(all(p.grad is g for p, g in zip(model.parameters(), gradients)))
        with neap.offloaded(model):
            self.assertTrue(all(p.grad is g for p, g in zip(model.parameters(), gradients)))
            model.weight.grad = None
        self.assertEqual((model.weight.grad, model.bias.grad), (None, gradients[1]))

    def test_a_checkpoint_is_whole(self):
        model = nn.Linear(300, 200)
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(1, 300)).sum().backward()
        optimizer.step()
        path = self.folder / "model.pt"
        saved = neap.save_checkpoint(path, model, optimizer, epoch=3)
        self.assertEqual(saved.bytes, path.stat().st_size)
        loaded = torch.load(path)
        self.assertEqual(loaded["epoch"], 3)
        self.assertTrue(torch.equal(loaded["model"]["weight"], model.weight))
        self.assertEqual(set(loaded["optimizer"]), {"state", "param_groups"})
        with self.assertRaises((AttributeError, pickle.PicklingError)):
            neap.save_checkpoint(path, model, bad=lambda: 1)  # cannot be pickled: after the first bytes
        self.assertTrue(torch.equal(torch.load(path)["model"]["weight"], model.weight))
        self.assertEqual(os.listdir(self.folder), ["model.pt"])
        with self.assertRaises(ValueError):
            neap.save_checkpoint(path)
        with self.assertRaises(neap.NeapError) as caught:
            neap.save_checkpoint(self.folder / "nowhere" / "model.pt", model)
        self.assertEqual(caught.exception.status, neap.Status.ENOENT)

    def test_putting_away_on_the_host_changes_nothing(self):
        model = nn.Linear(3, 2)
        before = copy.deepcopy(model.state_dict())
        with self.assertRaises(ZeroDivisionError), neap.offloaded(model):
            1 / 0
        neap.cleanup_model_memory(model, torch.optim.SGD(model.parameters(), lr=1.0))
        self.assertIsNone(model.weight.grad)
        self.assertTrue(torch.equal(model.weight, before["weight"]))


    def test_no_room_on_the_way_back_leaves_all_of_it_on_the_host(self):
        class Held:  # to the way back it looks like a tensor on a device
            def __init__(self, room: bool) -> None:
                self.data = self
                self.room = room
                self.device = "cpu"

            def to(self, device: str) -> "Held":
                if device != "cpu" and not self.room:
                    raise torch.OutOfMemoryError("CUDA out of memory")
                moved = Held(self.room)
                moved.device = device
                return moved

        tensors = [Held(True), Held(True), Held(False), Held(True)]
        with self.assertRaises(torch.OutOfMemoryError):
            moving._move_back([(tensor, "cuda:0") for tensor in tensors])
        self.assertEqual([tensor.data.device for tensor in tensors], ["cpu"] * 4)
        moving._move_back([(tensor, "cuda:0") for tensor in tensors if tensor.room])
        self.assertEqual([tensor.data.device for tensor in tensors], ["cuda:0", "cuda:0", "cpu", "cuda:0"])

    def test_gradients_are_there_again_whatever_happens_on_the_way_back(self):
        model = nn.Linear(3, 2)
        model(torch.ones(1, 3)).sum().backward()
        before = model.weight.grad.clone()
        with unittest.mock.patch.object(moving, "_move_back", side_effect=torch.OutOfMemoryError("CUDA out of memory")):
            with self.assertRaises(torch.OutOfMemoryError), neap.offloaded(model):
                self.assertTrue(torch.equal(model.weight.grad, before))
        self.assertTrue(torch.equal(model.weight.grad, before))


class Loading(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.path = os.path.join(holder.name, "model.pt")
        self.model = Blocks()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.model(torch.ones(2, 8)).sum().backward()
        self.optimizer.step()
        neap.save_checkpoint(self.path, self.model, self.optimizer, epoch=3, step=7)

    def test_all_comes_back(self):
        model = Blocks()
        optimizer = torch.optim.AdamW(model.parameters())
        loaded = neap.load_checkpoint(self.path, model, optimizer)
        self.assertEqual((loaded.more, loaded.missing, loaded.unexpected, loaded.mismatched), ({"epoch": 3, "step": 7}, (), (), ()))
        self.assertEqual(repr(loaded), f"<LoadedCheckpoint {self.path}: all of the model; also epoch, step>")
        for p, q in zip(model.parameters(), self.model.parameters()):
            self.assertTrue(torch.equal(p, q))
        moments = [optimizer.state[p]["exp_avg"] for p in model.parameters()]
        self.assertTrue(all(torch.equal(m, self.optimizer.state[p]["exp_avg"]) for m, p in zip(moments, self.model.parameters())))
        self.assertEqual(neap.load_checkpoint(self.path).more["step"], 7)

    def test_what_does_not_fit_is_named(self):
        model = Blocks(layers=4)
        model.head = nn.Linear(8, 2)
        before = copy.deepcopy(model.state_dict())
        with self.assertRaises(ValueError) as caught:
            neap.load_checkpoint(self.path, model)
        self.assertEqual(str(caught.exception), (
            f"{self.path} does not fit the model: 2 missing in the file (layers.3.0.weight, layers.3.0.bias); 2 of another shape "
            "(head.weight: [1, 8] in the file, [2, 8] in the model, head.bias: [1] in the file, [2] in the model). strict=False loads what fits"
        ))  # fmt: skip
        self.assertTrue(all(torch.equal(model.state_dict()[n], v) for n, v in before.items()))
        loaded = neap.load_checkpoint(self.path, model, strict=False)
        self.assertEqual((loaded.missing, len(loaded.mismatched)), (("layers.3.0.weight", "layers.3.0.bias"), 2))
        self.assertTrue(torch.equal(model.layers[0][0].weight, self.model.layers[0][0].weight))
        loaded = neap.load_checkpoint(self.path, Blocks(layers=2), strict=False)
        self.assertEqual(loaded.unexpected, ("layers.2.0.weight", "layers.2.0.bias"))
        neap.save_checkpoint(self.path, epoch=1)
        with self.assertRaisesRegex(ValueError, "model.pt has no 'model'; it has epoch$"):
            neap.load_checkpoint(self.path, model)

    def test_names_before_the_models(self):
        neap.save_checkpoint(self.path, {"module._orig_mod." + name: value for name, value in self.model.state_dict().items()})
        model = torch.compile(Blocks(), backend="eager")
        self.assertEqual(neap.load_checkpoint(self.path, model).missing, ())
        self.assertTrue(torch.equal(model.head.weight, self.model.head.weight))

    def test_no_code_of_the_file_runs(self):
        torch.save({"model": Evil()}, self.path)
        with self.assertRaisesRegex(ValueError, "holds more than tensors and plain values"):
            neap.load_checkpoint(self.path, self.model)
        self.assertEqual(Evil.ran, [])
        torch.save([1], self.path)
        with self.assertRaisesRegex(ValueError, "holds a list"):
            neap.load_checkpoint(self.path)
        with self.assertRaises(FileNotFoundError):
            neap.load_checkpoint(self.path + ".none")


class Evil:
    ran = []

    def __reduce__(self):
        return Evil.ran.append, (1,)


class Managing(unittest.TestCase):
    def test_a_trial_names_what_it_left(self):
        manager = neap.MemoryManager(device_types=CPU)
        with manager.trial("clean") as clean:
            torch.zeros(64, 2001).sum()
        self.assertEqual((clean.result.survivors, clean.result.clean), ((), True))
        with self.assertLogs("neap", logging.WARNING) as logged, manager.trial("dirty") as dirty:
            kept_in_a_global.append(torch.zeros(64, 2002))
        self.addCleanup(kept_in_a_global.clear)
        (survivor,) = dirty.result.survivors
        self.assertEqual((survivor.shape, survivor.kind), ((64, 2002), "global"))
        self.assertIn("Trial dirty left behind: 500 KiB float32 [64, 2002] on cpu: global kept_in_a_global", logged.output[0])
        with self.assertRaises(ValueError), manager.trial("failed") as failed:
            fail_with(2003)
        self.assertEqual((failed.result.survivors, failed.result.failed), ((), "ValueError: with 64 rows"))
        self.assertEqual(len(manager.trials), 3)

    def test_what_grows_is_named(self):
        manager = neap.MemoryManager(device_types=CPU, memory_cleanup_frequency=2)
        history = self.history = []
        with self.assertLogs("neap", logging.WARNING) as logged:
            for _step in range(12):
                history.append(torch.zeros(16, 2004))
                torch.zeros(16, 2005)
                manager.step()
        (growing,) = manager.growing
        self.assertEqual((growing.shape, growing.dtype, growing.device), ((16, 2004), "float32", "cpu"))
        self.assertEqual(growing.bytes_per_look, 2 * 16 * 2004 * 4)
        self.assertTrue(any(".history" in h or "history[" in h for h in growing.holders), growing.holders)
        self.assertEqual(len(logged.output), 1)  # said once

    def test_a_history_of_losses_grows_by_what_their_graphs_keep(self):
        manager = neap.MemoryManager(device_types=CPU, memory_cleanup_frequency=1)
        weight = torch.randn(8, 2007, requires_grad=True)
        losses = self.losses = []
        with self.assertLogs("neap", logging.WARNING) as logged:
            for _ in range(6):
                losses.append((torch.ones(16, 8) @ weight).exp().sum())
                manager.step()
        (growing,) = manager.growing
        saved = 16 * 2007 * 4 + 16 * 8 * 4
        self.assertEqual((growing.shape, growing.saved_per_look, growing.bytes_per_look), ((), saved, saved + 4))
        self.assertTrue(any(".losses" in h or "losses[" in h for h in growing.holders), growing.holders)
        self.assertIn("126 KiB a look (126 KiB of it saved for a backward pass); held by", logged.output[0])

    def looks(self, step, count=8):
        """What grows at the end of this many steps with a sample each, and the warnings."""
        manager = neap.MemoryManager(device_types=CPU, memory_cleanup_frequency=1)
        with self.assertLogs("neap", logging.WARNING) as logged:
            logging.getLogger("neap").warning("begins")
            for number in range(count):
                step(number)
                manager.step()
        return manager.growing, logged.output[1:]

    def test_a_list_grows_whatever_the_shapes(self):
        history = self.history = []
        growing, warned = self.looks(lambda n: history.append({"x": torch.zeros(16, 2100 + n)}))
        (item,) = growing
        self.assertEqual((item.shape, item.shapes, item.counts), ((), 4, (0, 1, 2, 3, 4)))
        self.assertEqual(item.bytes_per_look, sum(16 * (2100 + n) * 4 for n in range(4, 8)) / 4)
        self.assertRegex(warned[0], r"Growing: tensors of 4 shapes on cpu: 0 -> 4 in 5 looks, 13\d KiB a look; held by .*history\[...\]\[...\]")
        self.assertEqual(len(warned), 1)

    def test_what_only_changes_does_not_grow(self):
        window = collections.deque(maxlen=6)
        slots = [None] * 8
        self.kept = (window, slots)

        def step(number):
            window.append(torch.zeros(16, 2200 + number))
            slots[0] = torch.zeros(16, 2300 + number)
            slots[number % 4] = torch.zeros(16, 2400 + number)
            torch.zeros(16, 2500 + number)

        for number in range(8):
            step(number)
        self.assertEqual(self.looks(lambda n: step(8 + n), 12), ((), []))

    def test_a_tensor_where_another_was_is_new(self):
        growth = _growth.Growth(CPU)
        tensor = torch.zeros(2)
        other = torch.zeros(2)
        growth._looks = 3
        growth._born = {id(tensor): (weakref.ref(tensor), 1), id(other): (weakref.ref(tensor), 1)}
        self.assertEqual((growth._birth(tensor, {}), growth._birth(other, {})), (1, 3))

    def test_a_type_of_device_may_be_a_word(self):
        self.kept = torch.zeros(64, 2006)
        self.assertEqual(neap.MemoryManager(device_types="cpu").device_types, ("cpu",))
        for result in (neap.lingering("cpu"), neap.clear_gpu_memory(force=True, device_types="cpu").lingering):
            self.assertEqual(len([item for item in result if item.shape == (64, 2006)]), 1)

    def test_wrong_arguments(self):
        for wrong in ({"max_checkpoints": 0}, {"memory_cleanup_frequency": 0}, {"cleanup_older_than_days": -1},
                      {"memory_cleanup_frequency": "2 days"}, {"memory_cleanup_frequency": "0 epochs"}, {"memory_cleanup_frequency": True}):  # fmt: skip
            with self.assertRaises(ValueError):
                neap.MemoryManager(**wrong)


class Blocks(nn.Module):
    """A small model with a list of layers; memory runs out at more than `room` samples at a time."""

    def __init__(self, room=None, layers=3):
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(layers))
        self.head = nn.Linear(8, 1)
        self.room = room
        self.sizes = []
        self.refs = []
        self.calls = 0

    def forward(self, x):
        self.sizes.append(len(x))
        for layer in self.layers:
            x = layer(x)
        activation = x * 1
        if torch.is_grad_enabled():
            self.refs.append(weakref.ref(activation))
        if self.room is not None and len(x) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        return self.head(activation).squeeze(-1)


def data(count=24):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(count, 8, generator=generator), torch.randn(count, generator=generator)


def training(model, **more):
    optimizer = more.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    options = {"batch_size": 8, "shuffle": False, **more}
    return neap.Training(model, optimizer, nn.functional.mse_loss, options.pop("data", data()), **options)


class OutOnce(torch.optim.SGD):
    """Runs out of memory in its first update, before or after it changed something."""

    changes = False
    done = False

    def step(self, closure=None):
        if not self.done:
            self.done = True
            if self.changes:
                with torch.no_grad():
                    self.param_groups[0]["params"][0].add_(1)
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().step(closure)


class TrainingCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        gc.freeze()  # objects from the imports need not be searched in each of the many collections
        cls.addClassCleanup(gc.unfreeze)

    def setUp(self):
        logging.getLogger("neap").setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger("neap").setLevel, logging.NOTSET)

    def same(self, one, other, places=5):
        for p, q in zip(one.parameters(), other.parameters()):
            self.assertTrue(torch.allclose(p, q, atol=10**-places), (p - q).abs().max())


class Train(TrainingCase):
    def test_options_that_make_no_sense(self):
        wrong = (
            {"cleanup": neap.CleanupOptions(every_steps=-1)}, {"cleanup": neap.CleanupOptions(every_epochs=-1)},
            {"memory": neap.MemoryOptions(limit=1.5)}, {"memory": neap.MemoryOptions(limit=0.0)},
            {"memory": neap.MemoryOptions(limit="junk")}, {"batch_size": 0},
        )  # fmt: skip
        for options in wrong:
            with self.assertRaises(ValueError, msg=str(options)):
                training(Blocks(), **options)

    def test_a_limit_without_a_device_is_said(self):
        for limit in (0.5, "1 GiB"):
            with self.assertLogs("neap", "WARNING") as logged:
                training(Blocks(), memory=neap.MemoryOptions(limit=limit)).train()
            self.assertTrue(any("No memory was limited" in line for line in logged.output), logged.output)

    def test_the_repr_of_results_is_short(self):
        result = training(Blocks(room=3), epochs=40).train()
        self.assertRegex(repr(result), r"^<TrainingResult: 120 steps, 40 epochs in \d+\.\d s, last loss 0\.\d+, out of memory 2 times, now micro-batch 2 x accumulation 4 x ranks 1 = 8>$")
        self.assertRegex(repr(neap.clear_gpu_memory()), r"^<ClearResult: gave back 0 B in \d+\.\d ms, 0 B reserved now>$")
        self.assertRegex(repr(neap.get_gpu_memory_stats()), r"^<MemoryStats: no CUDA device; host: \d+ MiB>$")
        with neap.MemoryManager(device_types=CPU).trial("one") as trial:
            pass
        self.assertEqual(repr(trial.result), "<TrialResult one: peak 0 B, clean>")

    def test_one_brought_through_has_the_weights_of_one_that_never_ran_out(self):
        plain = Blocks()
        tight = Blocks(room=3)
        expected = training(plain, epochs=2).train()
        result = training(tight, epochs=2).train()
        self.assertEqual((result.ooms, result.split), (2, neap.Split(2, 4)))
        self.assertEqual([r.what for r in result.rungs], ["micro_batch 4, accumulate 2", "micro_batch 2, accumulate 4"])
        self.assertEqual((result.steps, expected.steps), (6, 6))
        for one, other in zip(result.losses, expected.losses):
            self.assertAlmostEqual(one, other, places=5)
        self.same(plain, tight)
        self.assertEqual(tight.sizes[:3], [8, 4, 2])

    def test_nothing_of_the_failed_step_is_held_when_it_is_made_again(self):
        model = Blocks(room=4)
        held = []
        original = neap.Training._take

        def rung(self, *arguments):
            held.append([ref() for ref in model.refs if ref() is not None])
            original(self, *arguments)

        gc.disable()
        self.addCleanup(gc.enable)
        with unittest.mock.patch.object(neap.Training, "_take", rung), unittest.mock.patch.object(gc, "collect", lambda: 0):
            training(model).train()
        self.assertEqual(held, [[]])  # it does not even need a collection

    def test_uneven_batches_weigh_samples_alike(self):
        plain = Blocks()
        tight = Blocks(room=2)
        training(plain, data=data(11)).train()
        training(tight, data=data(11)).train()
        self.same(plain, tight)

    def test_a_pytorch_whose_only_gradient_scaler_is_cudas(self):  # before 2.3
        with unittest.mock.patch.object(torch.amp, "GradScaler", None), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = training(Blocks()).train()
        self.assertEqual(result.losses, training(Blocks()).train().losses)

    def test_the_ladders_end(self):
        model = Blocks(room=0)
        with self.assertRaises(neap.TrainingOutOfMemory) as caught:
            training(model).train()
        text = str(caught.exception)
        self.assertIn("no rung is left: CUDA out of memory. Tried to allocate 20.00 MiB. In force: ", text)
        self.assertIn("micro-batch 1 x accumulation 8 x ranks 1 = 8", text)
        self.assertIn("gradient checkpointing", text)
        self.assertTrue(all(p.grad is None for p in model.parameters()))
        self.assertTrue(text.endswith("What may help: mixed_precision=True about halves activations, and changes numerics"), text)
        with self.assertRaises(neap.TrainingOutOfMemory) as caught:
            training(Blocks(room=4), ladder=False, mixed_precision=True).train()
        self.assertIn("memory ran out at step 1 and the ladder is off: ", str(caught.exception))
        self.assertEqual(caught.exception.recommendations, (
            "ladder=True computes each step in smaller micro-batches and keeps the effective batch",
            "gradient_checkpointing=True keeps fewer activations and computes each layer again",
        ))  # fmt: skip
        with self.assertRaisesRegex(neap.TrainingOutOfMemory, "A smaller model or a larger device is needed$"):
            training(Blocks(room=0), gradient_checkpointing=True, mixed_precision=True).train()

    def test_what_to_begin_with_next_time(self):
        for options, wanted in (
            ({}, "batch_size=2, accumulate=4"),
            ({"batch_size": 7}, "batch_size=2, accumulate=4 (an effective batch of 8 instead of 7)"),
            ({"data": torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data()), batch_size=8)}, "batches of 2 from the DataLoader, accumulate=4"),
        ):
            (found,) = training(Blocks(room=3), **options).train().recommendations
            self.assertEqual(found, f"begin with {wanted}: that held, and no step is made twice")
        self.assertEqual(training(Blocks()).train().recommendations, ())

    def test_mixed_precision_only_where_asked_for(self):
        model = Blocks(room=0)
        with self.assertRaises(neap.TrainingOutOfMemory) as caught:
            training(model, ladder=neap.LadderOptions(allow_mixed_precision=True)).train()
        self.assertIn("mixed precision on", str(caught.exception))
        seen = []
        model = Blocks()
        model.head.register_forward_hook(lambda m, i, o: seen.append(o.dtype))
        training(model, mixed_precision=True).train()
        self.assertEqual(set(seen), {torch.bfloat16})
        self.assertEqual(model.head.weight.dtype, torch.float32)

    def test_checkpointing_computes_again_and_changes_nothing(self):
        plain = Blocks()
        checked = Blocks()
        calls = []
        checked.layers[0][0].register_forward_hook(lambda *_: calls.append(1))
        training(plain).train()
        training(checked, gradient_checkpointing=True).train()
        self.assertEqual(len(calls), 6)  # 3 steps, forward and backward
        self.same(plain, checked, places=7)
        self.assertEqual(_efficient.checkpoint_layers(checked, torch), 0)  # once is enough

    def test_other_errors_are_the_programs(self):
        model = Blocks()
        with self.assertRaises(RuntimeError) as caught:
            training(model, data=(torch.zeros(8, 5), torch.zeros(8))).train()
        self.assertIn("mat1 and mat2", str(caught.exception))

    def test_an_update_that_ran_out_before_it_began_is_made_again(self):
        plain = Blocks()
        model = Blocks()
        training(plain, optimizer=torch.optim.SGD(plain.parameters(), lr=0.1)).train()
        result = training(model, optimizer=OutOnce(model.parameters(), lr=0.1)).train()
        self.assertEqual((result.ooms, result.steps), (1, 3))
        self.same(plain, model)

    def test_an_update_that_ran_out_half_way_is_not_made_twice(self):
        model = Blocks()
        optimizer = OutOnce(model.parameters(), lr=0.1)
        optimizer.changes = True
        with self.assertRaises(neap.TrainingOutOfMemory) as caught:
            training(model, optimizer=optimizer).train()
        self.assertIn("in the middle of the optimizer's update", str(caught.exception))

    def test_kinds_of_data(self):
        x, y = data()
        wanted = Blocks()
        training(wanted).train()
        dataset = torch.utils.data.TensorDataset(x, y)
        for kind in (dataset, torch.utils.data.DataLoader(dataset, batch_size=8)):
            model = Blocks(room=4)
            training(model, data=kind).train()
            self.same(wanted, model)
        model = Blocks()
        samples = [{"x": a, "y": b} for a, b in zip(x, y)]
        def compute(m, batch):
            return nn.functional.mse_loss(m(batch["x"]), batch["y"])
        training(model, data=samples, compute=compute).train()
        self.same(wanted, model)

    def test_milestones_schedule_and_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.pt")
            result = training(
                Blocks(), epochs=2, saving=neap.SavingOptions(path=path), watch=neap.WatchOptions(milestone_every_steps=3),
                cleanup=neap.CleanupOptions(every_steps=2, every_epochs=1, after_save=True, on_end=True),
            ).train()
            self.assertEqual((torch.load(path)["epoch"], torch.load(path)["step"]), (2, 6))
        names = [m.name for m in result.milestones]
        self.assertEqual(names, ["start", "epoch 1 starts", "step 3", "epoch 1", "saved", "epoch 2 starts", "step 6", "epoch 2", "saved", "end"])
        self.assertEqual(result.cleanups, 1 + 3 + 2 + 2 + 1)
        self.assertEqual(training(Blocks(room=4), cleanup=neap.CleanupOptions(every_ticks=3)).train().cleanups, 1 + 1 + 2)  # start, oom; six ticks
        self.assertEqual([m.step for m in result.milestones if m.name.startswith("epoch")], [0, 3, 3, 6])

    def test_milestones_are_taken_where_they_happen(self):
        sizes = []

        def make_model():
            sizes.append(memory.host_bytes())
            self.kept = torch.ones(200 << 20, dtype=torch.uint8)
            sizes.append(memory.host_bytes())
            return Blocks()

        def make_optimizer(model):
            sizes.append(memory.host_bytes())
            return torch.optim.SGD(model.parameters(), lr=0.1)

        run = neap.Training(make_model, make_optimizer, nn.functional.mse_loss, data(), batch_size=8)
        result = run.train()
        start, model, optimizer = result.milestones[:3]
        self.assertEqual([m.name for m in result.milestones], ["start", "model ready", "optimizer ready", "epoch 1 starts", "epoch 1", "end"])
        self.assertLess(start.stats.host, sizes[0] + (20 << 20))
        self.assertGreater(model.host_delta, 150 << 20)
        self.assertLess(optimizer.host_delta, 50 << 20)
        self.assertRegex(str(model), r"^model ready \(step 0\): 0\.0 GB allocated \(Δ\+0\.0 GB\), \d\.\d GB on the host \(Δ\+0\.2 GB\)$")
        self.assertEqual(result.steps, 3)
        self.assertEqual([m.name for m in run.train().milestones], ["start", "epoch 1 starts", "epoch 1", "end"])  # they are made

    def low(self, free, peak=3 << 20):
        """A device of 1 GiB with this much free; this process has no more than its peak."""
        device = memory.DeviceMemory(0, "A device", "torch", 1 << 20, 2 << 20, peak, 4 << 20, free, 1 << 30)
        stats = memory.MemoryStats((device,), 1, "")
        return unittest.mock.patch.object(memory, "get_gpu_memory_stats", lambda: stats)

    def test_thresholds(self):
        with self.low(100 << 20):
            result = training(Blocks(), memory=neap.MemoryOptions(degrade_below="200 MiB")).train()
            self.assertEqual((result.ooms, result.rungs[0].what), (0, "micro_batch 4, accumulate 2"))
            self.assertEqual((result.rungs[0].why, result.rungs[0].step), ("low: device memory below 200 MiB (99.0 MiB left)", 2))
            self.assertEqual((result.steps, len(result.rungs)), (3, 1))
            result = training(Blocks(), epochs=5, memory=neap.MemoryOptions(stop_below="200 MiB")).train()
            stopped = "device memory below 200 MiB (99.0 MiB left) after step 2"
            self.assertEqual((result.steps, result.epochs, result.stopped), (2, 0, stopped))
            self.assertEqual(training(Blocks(), memory=neap.MemoryOptions(stop_below="50 MiB")).train().stopped, "")
        with unittest.mock.patch.object(memory, "host_available_bytes", lambda: 1 << 20):
            self.assertEqual(training(Blocks(), memory=neap.MemoryOptions(host_stop_below="2 MiB")).train().steps, 2)
            (rung,) = training(Blocks(), memory=neap.MemoryOptions(host_degrade_below="2 MiB")).train().rungs
            self.assertEqual((rung.step, rung.why), (2, "low: host memory below 2.00 MiB (1.00 MiB left)"))
            with self.assertLogs("neap", "WARNING") as logged:
                training(Blocks(), memory=neap.MemoryOptions(host_warn_below="2 MiB")).train()
            self.assertEqual(len(logged.output), 1)
        with self.assertRaises(ValueError):
            training(Blocks(), memory=neap.MemoryOptions(warn_below="1 GiB", degrade_below="2 GiB"))

    def test_a_threshold_backs_off(self):
        with self.low(100 << 20):
            with self.assertLogs("neap", "WARNING") as logged:
                result = training(Blocks(), epochs=10, memory=neap.MemoryOptions(degrade_below="200 MiB"), ladder=False).train()
            self.assertEqual((result.steps, result.cleanups, result.rungs), (30, 1, ()))  # the one at the start
            self.assertEqual(len(logged.output), 1, logged.output)
            self.assertIn("device memory below 200 MiB (99.0 MiB left); no rung of the ladder is left", logged.output[0])
            ladder = neap.LadderOptions(allow_checkpointing=False)
            rungs = training(Blocks(), epochs=10, memory=neap.MemoryOptions(degrade_below="200 MiB"), ladder=ladder).train().rungs
            self.assertEqual([r.step for r in rungs], [2, 11, 20])  # eight steps for each rung to show its effect
            self.assertEqual((rungs[0].peak_before, rungs[0].peak_after), (3 << 20, 3 << 20))

    def test_cleanups_that_only_slow_are_said_to(self):
        with self.low(100 << 20), self.assertLogs("neap", "WARNING") as logged:
            training(Blocks(), epochs=5, cleanup=neap.CleanupOptions(every_steps=1)).train()
        self.assertEqual(len(logged.output), 1, logged.output)
        self.assertRegex(logged.output[0], r"3 cleanups in a row after each step gave nothing back and took \d+\.\d ms")

    def test_what_is_an_out_of_memory_error(self):
        self.assertTrue(neap.is_out_of_memory(torch.OutOfMemoryError("x")))
        for text in ("CUDA out of memory. Tried", "CUDA error: out of memory\nCUDA kernel errors might be", "CUDA error: "
                     "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"):  # fmt: skip
            self.assertTrue(neap.is_out_of_memory(RuntimeError(text)))
        for other in (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"), ValueError("CUDA out of memory"), MemoryError(), None):
            self.assertFalse(neap.is_out_of_memory(other))


class Summary(unittest.TestCase):
    def test_ours_is_pytorchs_line_by_line(self):
        stats = _abi.Stats()
        numbers = (ctypes.c_int64 * (ctypes.sizeof(stats) // 8)).from_buffer(stats)
        scales = (3, 700 << 10, 900 << 10, 5 << 20, 700 << 20, 800 << 20, 3 << 30, 80 << 30, 749_999, 750_000, 10**7, 10**12)
        for at in range(len(numbers)):
            numbers[at] = scales[at * 7 % len(scales)] + at
        stats.num_ooms = 3
        stats.num_alloc_retries = 12345
        named = _sources._named(stats)
        for abbreviated in (False, True):
            with unittest.mock.patch.object(torch.cuda, "memory_stats", lambda device=None: named), \
                    unittest.mock.patch.object(torch.cuda.memory, "memory_stats", lambda device=None: named):
                theirs = torch.cuda.memory_summary(0, abbreviated)
            ours = _sources._summary(stats, 0, abbreviated)
            self.assertEqual(ours.splitlines()[2:], theirs.splitlines()[2:])
            self.assertEqual(ours.splitlines()[1].strip("| ").replace("neap", "PyTorch"), theirs.splitlines()[1].strip("| "))


class Wrapped(unittest.TestCase):
    def test_what_is_wrapped_is_unwrapped(self):
        wrapped = nn.parallel.DistributedDataParallel.__new__(nn.parallel.DistributedDataParallel)
        nn.Module.__init__(wrapped)
        wrapped.module = Blocks()
        self.assertIs(training(wrapped).model, wrapped.module)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(warnings="ignore")
