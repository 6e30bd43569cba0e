"""Training as a newcomer meets it: kinds of data, batches, models and optimizers, wrong arguments, callbacks, on the CPU."""

import collections
import copy
import logging
import os
import pathlib
import pickle
import tempfile
import unittest
import unittest.mock
import warnings

warnings.filterwarnings("ignore")
import neap
import torch
from neap import _batches, _efficient
from test_torch import Blocks, TrainingCase, data, training
from torch import nn


def by_name(model, batch):
    return nn.functional.mse_loss(model(batch["x"]), batch["y"])


class Batches(torch.utils.data.IterableDataset):
    def __init__(self, count):
        self.x, self.y = data(count)

    def __iter__(self):
        return iter(list(zip(self.x, self.y)))


class Data(TrainingCase):
    def check(self, kind, count=22, wanted_steps=3, **options):
        """Weights and steps are those of the same samples as tensors, even if memory runs out."""
        wanted = Blocks()
        training(wanted, data=data(count)).train()
        for room in (None, 3):
            model = Blocks(room)
            result = training(model, data=kind(), **options).train()
            self.assertEqual(result.steps, wanted_steps)
            self.assertEqual(result.split.effective, 8)
            self.same(wanted, model)

    def test_columns(self):
        x, y = data(22)
        self.check(lambda: {"x": x, "y": y}, compute=by_name)
        self.check(lambda: (x.numpy(), y.numpy()))

    def test_iterables(self):
        self.check(lambda: Batches(22))
        x, y = data(22)
        batches = [(x[n : n + 8], y[n : n + 8]) for n in range(0, 22, 8)]
        self.check(lambda: (batch for batch in batches))

    def test_loader_batches_are_accumulated(self):
        dataset = torch.utils.data.TensorDataset(*data(22))
        self.check(lambda: torch.utils.data.DataLoader(dataset, batch_size=4), batch_size=32, accumulate=2)
        result = training(Blocks(), data=torch.utils.data.DataLoader(dataset, batch_size=4), batch_size=4, accumulate=2).train()
        self.assertEqual(result.split, neap.Split(4, 2))
        with self.assertRaisesRegex(ValueError, "the DataLoader's batches have 4 samples, batch_size is 8"):
            training(Blocks(), data=torch.utils.data.DataLoader(dataset, batch_size=4))

    def test_steps_of_an_epoch_are_counted_beforehand(self):
        for count, steps in ((22, 3), (24, 3), (25, 4)):
            batches = _batches.Batches(torch, data(count), neap.Split(4, 2), rank=0, shuffle=False, seed=0)
            self.assertEqual((batches.count_steps(), len(list(batches.epoch(0)))), (steps, steps))

    def test_a_sampler_is_told_the_epoch(self):
        dataset = torch.utils.data.TensorDataset(*data(8))
        seen = []
        sampler = torch.utils.data.distributed.DistributedSampler(dataset, num_replicas=1, rank=0)
        sampler.set_epoch = seen.append
        training(Blocks(), data=torch.utils.data.DataLoader(dataset, batch_size=8, sampler=sampler), epochs=3).train()
        self.assertEqual(seen, [0, 1, 2])

    def test_unequal_parts_keep_the_effective_batch(self):
        """A prime batch: the parts' gradients, weighted by samples, are the whole batch's, within 1e-6."""

        def gradients(room, **options):
            model = Blocks(room)
            model.double()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
            found = []
            original = optimizer.step

            def step(closure=None):
                found.append([p.grad.clone() for p in model.parameters()])
                return original(closure)

            optimizer.step = step
            x, y = data(514 + 300)
            options = {"data": (x.double(), y.double()), "batch_size": 257, "accumulate": 2, **options}
            result = training(model, optimizer=optimizer, **options).train()
            return found, result, model.sizes

        wanted, whole, _ = gradients(None)
        self.assertEqual((whole.split, len(wanted)), (neap.Split(257, 2), 2))
        found, result, sizes = gradients(200)
        self.assertEqual(result.split, neap.Split(129, 4, 1, 514))
        self.assertEqual((result.split.effective, str(result.split)), (514, "micro-batch 129 or 128 x accumulation 4 x ranks 1 = 514"))
        self.assertEqual(sizes, [257, 129, 129, 128, 128, 100, 100, 100])  # also the epoch's short last batch
        self.assertEqual(result.rungs[0].what, "micro_batch 129, accumulate 4")
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*(t.double() for t in data(814))), batch_size=257)
        by_loader, of_loader, sizes = gradients(100, data=loader, batch_size=32)
        self.assertEqual(of_loader.split, neap.Split(65, 8, 1, 514))
        self.assertEqual(sizes[-5:], [65, 64, 64, 64, 43])
        for other in (found, by_loader):
            for one, two in zip(wanted, other, strict=True):
                for p, q in zip(one, two, strict=True):
                    self.assertTrue(torch.allclose(p, q, atol=1e-6, rtol=1e-6), (p - q).abs().max())

    def test_less_than_a_batch(self):
        plain = Blocks()
        tight = Blocks(room=1)
        self.assertEqual(training(plain, data=data(3), batch_size=32).train().steps, 1)
        training(tight, data=data(3), batch_size=32).train()
        self.same(plain, tight)

    def test_shuffling_is_by_seed_and_epoch(self):
        def order(seed):
            seen = []
            model = Blocks()
            model.register_forward_pre_hook(lambda m, args: seen.extend(args[0][:, 0].tolist()))
            training(model, shuffle=True, seed=seed, epochs=2).train()
            return seen

        self.assertEqual(order(1), order(1))
        self.assertNotEqual(order(1), order(2))
        self.assertNotEqual(order(1)[:24], order(1)[24:])
        self.assertEqual(sorted(order(1)[:24]), sorted(data()[0][:, 0].tolist()))

    def test_what_is_no_data(self):
        x, y = data(8)
        for wrong, text in (
            ((x, y[:7]), "8, 7 samples: expected as many in each"),
            ([], "there are no samples"),
            ((x[:0], y[:0]), "there are no samples"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                training(Blocks(), data=wrong)
        with self.assertRaisesRegex(TypeError, "a int is not a tuple or dict"):
            training(Blocks(), data=7)
        with self.assertRaisesRegex(ValueError, "no batch in epoch 2; what can be gone through once only"):
            training(Blocks(), data=((x, y) for _ in range(2)), epochs=2).train()

    def test_cutting(self):
        Pair = collections.namedtuple("Pair", "a b")
        mask = torch.ones(5, 5)
        x = torch.arange(4.0)
        batch = {"x": x, "pair": Pair(x, mask), "names": ["a", "b", "c", "d"], "list": [x, 7], "scale": torch.tensor(2.0)}
        batch.update(user=collections.UserDict(x=x), text="abcd", nothing=None)
        self.assertEqual(_batches.length(batch), 4)
        piece = _batches.cut(batch, 1, 3, 4, lambda t: t)
        for found in (piece["x"], piece["pair"].a, piece["list"][0], piece["user"]["x"]):
            self.assertEqual(found.tolist(), [1, 2])
        self.assertEqual(piece["names"], ["b", "c"])
        self.assertIs(piece["pair"].b, mask)  # another first dimension: each piece has it whole
        self.assertEqual((piece["list"][1], piece["text"], piece["nothing"], piece["scale"].item()), (7, "abcd", None, 2.0))
        self.assertEqual((type(piece["user"]), type(piece["pair"])), (collections.UserDict, Pair))
        self.assertEqual([_batches.length(b) for b in (["a", "b"], {"n": [1, 2, 3]}, object(), torch.tensor(1.0))], [2, 3, 1, 1])

    def test_a_batch_without_tensors(self):
        model = Blocks()
        seen = []

        def compute(m, batch):
            seen.append(list(batch))
            return m(torch.tensor([[float(len(word))] * 8 for word in batch])).mean()

        training(model, data=["a", "bb", "ccc"], batch_size=2, compute=compute).train()
        self.assertEqual(seen, [["a", "bb"], ["ccc"]])

    def test_batches_that_need_compute(self):
        x, y = data(8)
        for batches, text in (({"x": x, "y": y}, "type dict is not an"), ((x, y, y), "3 parts is not an"), ((x,), "1 parts is not an")):
            with self.assertRaisesRegex(TypeError, text + r" \(input, target\): say how its loss is computed with compute="):
                training(Blocks(), data=batches).train()

    def test_what_is_no_loss(self):
        for loss, text in ((lambda m, b: m(b[0]), r"a tensor of shape \[8\]"), (lambda m, b: 1.5, "float"), (lambda m, b: None, "None")):
            with self.assertRaisesRegex(TypeError, f"the loss is {text}.*: expected one number"):
                training(Blocks(), compute=loss).train()


class Models(TrainingCase):
    def test_wrapped_and_compiled(self):
        wanted = Blocks()
        training(wanted).train()
        with tempfile.TemporaryDirectory() as folder:
            for wrap in (nn.DataParallel, lambda model: torch.compile(model, backend="eager")):
                inner = Blocks(room=3)
                path = os.path.join(folder, "model.pt")
                result = training(wrap(inner), optimizer=torch.optim.SGD(inner.parameters(), lr=0.1, momentum=0.9), saving=neap.SavingOptions(path=path)).train()
                self.assertEqual(result.split, neap.Split(2, 4))
                self.same(wanted, inner)
                self.assertEqual(set(torch.load(path)["model"]), set(inner.state_dict()))  # without the wrapper's prefix

    def test_a_compiled_model_is_checkpointed(self):
        wanted = Blocks()
        inner = Blocks()
        calls = []
        training(wanted).train()
        inner.layers[0][0].register_forward_hook(lambda *_: calls.append(1))
        model = torch.compile(inner, backend="eager")
        model(data()[0])
        training(model, optimizer=torch.optim.SGD(inner.parameters(), lr=0.1, momentum=0.9), gradient_checkpointing=True).train()
        self.same(wanted, inner)
        self.assertTrue(all("forward" in layer.__dict__ for layer in inner.layers))

    def test_parameters_and_layers_in_two_places(self):
        def make():
            torch.manual_seed(3)
            layer = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
            return nn.Sequential(layer, layer, nn.Linear(8, 1), nn.Flatten(0))

        wanted = make()
        shared = make()
        training(wanted).train()
        calls = []
        shared[0][0].register_forward_hook(lambda *_: calls.append(1))
        training(shared, gradient_checkpointing=True).train()
        self.same(wanted, shared)
        self.assertEqual(len(calls), 3 * 2 * 2)  # each of its two uses once more, not twice
        self.assertIs(shared[0], shared[1])

    def test_a_checkpointed_model_can_be_copied_and_pickled(self):
        model = Blocks()
        _efficient.checkpoint_layers(model, torch)
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            with torch.no_grad():
                for parameter in twin.parameters():
                    parameter.zero_()
            self.assertEqual(twin(torch.ones(2, 8)).tolist(), [0.0, 0.0])  # its own layers, not those of the first
            self.assertFalse(_efficient.can_checkpoint(twin, torch))
        self.assertNotEqual(model(torch.ones(2, 8)).tolist(), [0.0, 0.0])

    def test_data_parallel_is_not_checkpointed(self):
        self.assertFalse(_efficient.can_checkpoint(nn.DataParallel(Blocks()), torch))

    def test_a_model_on_several_devices(self):
        class Elsewhere(nn.Linear):
            def forward(self, x):
                return super().forward(x).to("meta")

        seen = []

        def loss_fn(output, target):
            seen.append((output.device.type, target.device.type))
            raise ZeroDivisionError  # as far as it can be followed here

        model = Elsewhere(8, 1)
        with self.assertRaises(ZeroDivisionError):
            neap.Training(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn, data()).train()
        self.assertEqual(seen, [("meta", "meta")])

    def test_sharded_models_are_refused(self):
        class FullyShardedDataParallel(nn.Linear):
            pass

        with self.assertRaisesRegex(ValueError, "sharded over ranks"):
            training(nn.Sequential(FullyShardedDataParallel(8, 1)))

    def test_evaluation_in_a_callback_does_not_stay(self):
        model = Blocks()
        modes = []
        model.register_forward_pre_hook(lambda m, _: modes.append(m.training))
        training(model, epochs=2, callbacks=neap.CallbackOptions(on_epoch=lambda epoch: model.eval())).train()
        self.assertEqual(set(modes), {True})


class Optimizers(TrainingCase):
    def test_closures_are_refused(self):
        with self.assertRaisesRegex(ValueError, "LBFGS.step needs a closure"):
            training(Blocks(), optimizer=torch.optim.LBFGS(Blocks().parameters()))
        for wrong in (object(), nn.Linear(1, 1)):
            with self.assertRaisesRegex(TypeError, "is not a torch.optim.Optimizer"):
                training(Blocks(), optimizer=wrong)
        model = Blocks()
        with self.assertRaisesRegex(TypeError, "NoneType is not a torch.optim.Optimizer"):
            neap.Training(model, None, nn.functional.mse_loss, data())

    def test_a_schedule(self):
        model = Blocks()
        rates = []
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        callbacks = neap.CallbackOptions(on_step=lambda step, loss: (schedule.step(), rates.extend(schedule.get_last_lr())))
        result = training(model, optimizer=optimizer, callbacks=callbacks).train()
        self.assertEqual((rates, result.steps), ([0.5, 0.25, 0.125], 3))

    def test_half_precision_scales_the_loss(self):
        seen = []
        model = Blocks()
        model.head.register_full_backward_hook(lambda m, i, o: seen.append(float(o[0].abs().max())))
        model.head.register_forward_hook(lambda m, i, o: seen.append(o.dtype))
        wanted = training(Blocks(), epochs=10).train().losses
        found = training(model, mixed_precision="fp16", epochs=10).train().losses
        self.assertIn(torch.float16, seen)
        self.assertGreater(max(v for v in seen if isinstance(v, float)), 100)  # 65536 times the gradient of the loss
        self.assertAlmostEqual(wanted[-1], found[-1], places=1)
        with self.assertRaisesRegex(ValueError, "mixed_precision 'int8'"):
            training(Blocks(), mixed_precision="int8")

    def test_an_update_in_half_precision_is_made_again(self):
        plain = Blocks()
        model = Blocks()

        class Once(torch.optim.SGD):
            done = False

            def step(self, closure=None):
                if not self.done:
                    self.done = True
                    raise torch.OutOfMemoryError("CUDA out of memory.")
                return super().step(closure)

        training(plain, mixed_precision="fp16", optimizer=torch.optim.SGD(plain.parameters(), lr=0.1)).train()
        result = training(model, mixed_precision="fp16", optimizer=Once(model.parameters(), lr=0.1)).train()
        self.assertEqual((result.ooms, result.steps), (1, 3))
        self.same(plain, model, places=2)  # a scaled gradient is not taken for a plain one

    def test_adam_that_runs_out_while_it_makes_its_state(self):
        plain = Blocks()
        model = Blocks()
        training(plain, optimizer=torch.optim.AdamW(plain.parameters())).train()
        real = torch.zeros_like
        calls = []

        def third(value, **more):
            calls.append(1)
            if len(calls) == 3:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return real(value, **more)

        with unittest.mock.patch.object(torch, "zeros_like", third):
            result = training(model, optimizer=torch.optim.AdamW(model.parameters())).train()
        self.assertEqual((result.ooms, result.steps), (1, 3))
        self.same(plain, model)


class Saving(TrainingCase):
    def setUp(self):
        super().setUp()
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = os.path.join(holder.name, "run")

    def there(self):
        return sorted(int(name[5:-3]) for name in os.listdir(self.folder) if name.endswith(".pt"))

    def train(self, scores, **saving):
        """One epoch of three steps for each score."""
        callbacks = neap.CallbackOptions(on_epoch=lambda epoch: scores[epoch - 1])
        return training(Blocks(), epochs=len(scores), callbacks=callbacks, saving=neap.SavingOptions(folder=self.folder, **saving)).train()

    def test_the_best_and_the_newest_stay(self):
        result = self.train([0.5, 0.2, 0.9, 0.3, 0.7], keep_best=2)
        self.assertEqual(self.there(), [6, 12, 15])
        self.assertEqual(result.checkpoints, tuple(os.path.join(self.folder, f"step-{n}.pt") for n in (15, 12, 6)))
        self.assertEqual(sorted(name for name in os.listdir(self.folder) if not name.startswith(".")), sorted(f"step-{n}.{e}" for n in (6, 12, 15) for e in ("pt", "json")))
        loaded = neap.load_checkpoint(result.checkpoints[1], Blocks())
        self.assertEqual(loaded.more, {"epoch": 4, "step": 12})
        self.assertEqual([m.name for m in result.milestones].count("saved"), 5)

    def test_by_the_mean_loss_and_the_highest(self):
        self.train([None] * 3, keep_best=1)  # the loss falls
        self.assertEqual(self.there(), [6, 9])
        self.folder += "-max"
        self.train([0.5, 0.9, 0.1], keep_best=1, mode="max")
        self.assertEqual(self.there(), [6, 9])

    def test_at_most_so_many_bytes(self):
        self.train([0.1])
        size = os.path.getsize(os.path.join(self.folder, "step-3.pt"))
        self.folder += "-small"
        self.train([0.1, 0.5, 0.4, 0.3], max_size=size * 5 // 2)
        self.assertEqual(self.there(), [3, 12])
        self.assertFalse(any(files for where, _, files in os.walk(os.path.join(self.folder, ".neap-trash")) if any(f.endswith(".pt") for f in files)))

    def test_nothing_of_others_is_deleted(self):
        os.makedirs(self.folder)
        theirs = os.path.join(self.folder, "step-1.pt")
        torch.save({"model": {}}, theirs)
        with self.assertRaisesRegex(ValueError, r"has checkpoints that no Training saved \(step-1\.pt\)"):
            self.train([0.1])
        self.assertEqual(os.listdir(self.folder), ["step-1.pt"])
        os.unlink(theirs)
        self.train([0.1, 0.2], keep_best=1)
        self.train([0.1, 0.2, 0.3], keep_best=1)  # its own it knows again
        self.assertEqual(self.there(), [3, 9])

    def test_no_metric_to_compare(self):
        logging.getLogger("neap").setLevel(logging.WARNING)
        with self.assertLogs("neap", "WARNING") as logged:
            self.train([float("nan")] * 3, keep_best=1)
        self.assertIn("No checkpoint was deleted: ", logged.output[0])
        self.assertEqual(self.there(), [3, 6, 9])
        for wrong in ({"mode": "best"}, {"keep_best": -1}, {"max_size": "much"}):
            with self.assertRaises(ValueError):
                self.train([0.1], **wrong)


class Groups(TrainingCase):
    def test_by_theme(self):
        seen = []
        with tempfile.TemporaryDirectory() as folder:
            result = training(
                Blocks(room=3),
                epochs=2,
                cleanup=neap.CleanupOptions(on_start=False, every_epochs=1),
                memory=neap.MemoryOptions(host_warn_below="1 KiB"),
                ladder=neap.LadderOptions(allow_checkpointing=False),
                saving=neap.SavingOptions(folder=pathlib.Path(folder), keep_best=1),
                watch=neap.WatchOptions(leaks_every_steps=0, milestone_every_steps=3),
                callbacks=neap.CallbackOptions(on_step=lambda step, loss: seen.append(step)),
            ).train()
            self.assertEqual(len(result.checkpoints), 2)
        self.assertEqual((result.cleanups, result.ooms, seen), (2 + 2, 2, [1, 2, 3, 4, 5, 6]))
        self.assertIn("step 3", [m.name for m in result.milestones])
        with self.assertRaises(neap.TrainingOutOfMemory):
            training(Blocks(room=3), ladder=neap.LadderOptions(False)).train()

    def test_by_the_names_of_a_manager(self):
        with tempfile.TemporaryDirectory() as folder:
            saving = neap.SavingOptions(folder=folder)
            result = training(Blocks(), epochs=5, saving=saving, max_checkpoints=2, memory_cleanup_frequency=2).train()
            self.assertEqual((len(result.checkpoints), result.cleanups), (2, 1 + 2))  # one at the start
        result = training(Blocks(), epochs=2, memory_cleanup_frequency="2 steps").train()
        self.assertEqual(result.cleanups, 1 + result.steps // 2)
        with tempfile.TemporaryDirectory() as folder:

            def make_old(epoch):
                for path in pathlib.Path(folder).glob("step*"):
                    os.utime(path, (1e9, 1e9))

            saving = neap.SavingOptions(folder=folder)
            result = training(Blocks(), epochs=5, saving=saving, callbacks=neap.CallbackOptions(on_epoch=make_old), cleanup_older_than_days=7).train()
            self.assertLessEqual(len(result.checkpoints), 2)  # the newest and the best

    def test_what_is_wrong(self):
        for error, text, options in (
            (TypeError, "memory: a CleanupOptions is not a MemoryOptions", {"memory": neap.CleanupOptions()}),
            (TypeError, "unexpected keyword argument 'memory_limit'", {"memory_limit": 0.5}),
            (TypeError, r"'cleanup_every_step'; did you mean cleanup=CleanupOptions\(every_steps=...\)\?", {"cleanup_every_step": 1}),
            (TypeError, r"did you mean max_checkpoints=...\?", {"max_checkpoint": 1}),
            (TypeError, r"did you mean memory=MemoryOptions\(limit=...\)\?", {"memory_limit": 0.5}),
            (TypeError, "unexpected keyword argument 'xyz'$", {"xyz": 1}),
            (ValueError, "max_checkpoints needs a folder of checkpoints", {"max_checkpoints": 2}),
            (ValueError, "memory_cleanup_frequency 0: expected a number of epochs", {"memory_cleanup_frequency": 0}),
            (ValueError, "on_leak='no'", {"watch": neap.WatchOptions(on_leak="no")}),
            (ValueError, "every_steps=-1: expected a whole number", {"cleanup": neap.CleanupOptions(every_steps=-1)}),
        ):
            with self.assertRaisesRegex(error, text):
                training(Blocks(), **options)


class Arguments(TrainingCase):
    def test_what_makes_no_sense(self):
        for wrong in (
            {"epochs": -1}, {"epochs": 1.5}, {"accumulate": 0}, {"batch_size": "8"}, {"rank_timeout": 0}, {"batch_size": True},
            {"watch": neap.WatchOptions(leaks_every_steps=-1)}, {"watch": neap.WatchOptions(milestone_every_steps=-1)},
            {"memory": neap.MemoryOptions(limit=True)}, {"memory": neap.MemoryOptions(degrade_below="much")},
        ):  # fmt: skip
            with self.assertRaises(ValueError, msg=str(wrong)):
                training(Blocks(), **wrong)
        for model in (None, nn.Identity(), Blocks):
            with self.assertRaisesRegex(TypeError, "is not a torch.nn.Module with parameters"):
                neap.Training(model, torch.optim.SGD(Blocks().parameters()), nn.functional.mse_loss, data())
        with self.assertRaisesRegex(TypeError, "loss_fn or compute"):
            neap.Training(Blocks(), torch.optim.SGD(Blocks().parameters()), None, data())

    def test_no_epochs(self):
        model = Blocks()
        before = Blocks()
        result = training(model, epochs=0).train()
        self.assertEqual((result.steps, result.epochs, result.losses), (0, 0, ()))
        self.same(model, before, places=9)

    def test_train_again_goes_on(self):
        wanted = Blocks()
        model = Blocks(room=3)
        training(wanted, epochs=2).train()
        run = training(model)
        self.assertEqual((run.train().ooms, run.train().ooms), (2, 0))  # the rungs stay
        self.same(wanted, model)

    def test_callbacks_that_raise(self):
        for callbacks in (neap.CallbackOptions(on_step=lambda *_: 1 / 0), neap.CallbackOptions(on_epoch=lambda _: 1 / 0)):
            model = Blocks()
            with self.assertRaises(ZeroDivisionError), self.assertLogs("neap", "INFO") as logged:
                logging.getLogger("neap").setLevel(logging.INFO)
                training(model, cleanup=neap.CleanupOptions(on_start=False), callbacks=callbacks).train()
            self.assertTrue(any("Cleaning up" in line for line in logged.output))  # after the failure, too

    def test_callbacks_are_called(self):
        steps = []
        epochs = []
        def starts(epoch):
            return epochs.append(-epoch)
        called = neap.CallbackOptions(on_epoch_start=starts, on_step=lambda *step: steps.append(step), on_epoch=epochs.append)
        training(Blocks(), epochs=2, callbacks=called).train()
        self.assertEqual(([s for s, _ in steps], epochs), ([1, 2, 3, 4, 5, 6], [-1, 1, -2, 2]))
        self.assertTrue(all(loss > 0 for _, loss in steps))


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(warnings="ignore")
