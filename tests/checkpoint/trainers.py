"""Folders as trainers leave them, made with the standard library alone.

    trainers.py transformers FOLDER METRIC GREATER_IS_BETTER BEST STEP=VALUE...
    trainers.py lightning FILE MODE BEST_PATH PATH=VALUE...        (several callbacks: each after a word "and")
    trainers.py orbax FOLDER STEP METRIC=VALUE...

GREATER_IS_BETTER: true, false, none (not recorded), or nofile (no training_args.bin). Files that torch.save would write are
zip archives with a pickle and storages, in its layout.
"""

import collections
import io
import json
import pathlib
import pickle
import struct
import sys
import zipfile


class FloatStorage:
    """Stands for torch.FloatStorage; its module is renamed in the pickle."""


class TrainingArguments:
    """Stands for transformers.training_args.TrainingArguments."""


class Evil:
    """A call that must never be made."""

    def __reduce__(self):
        return (__import__("os").system, ("touch /tmp/neap-pickle-was-executed",))


def _rebuild_tensor_v2(*arguments):
    raise AssertionError("only its name is pickled")


class Tensor:
    def __init__(self, value):
        self.value = value


class Pickler(pickle.Pickler):
    def __init__(self, file, storages):
        super().__init__(file, protocol=2)
        self.storages = storages

    def persistent_id(self, object):
        if isinstance(object, tuple) and object and object[0] == "stored":
            self.storages.append(struct.pack("<f", object[1]))
            return ("storage", FloatStorage, str(len(self.storages) - 1), "cpu", 1)
        return None

    def reducer_override(self, object):
        if isinstance(object, Tensor):
            return (_rebuild_tensor_v2, (("stored", object.value), 0, (), (), False, collections.OrderedDict()))
        return NotImplemented


def save(path, object):
    """What matters here of torch.save."""
    data = io.BytesIO()
    storages = []
    Pickler(data, storages).dump(object)
    text = data.getvalue()
    for old, new in ((b"c__main__\nFloatStorage", b"ctorch\nFloatStorage"),
                     (b"c__main__\n_rebuild_tensor_v2", b"ctorch._utils\n_rebuild_tensor_v2"),
                     (b"c__main__\nTrainingArguments", b"ctransformers.training_args\nTrainingArguments")):  # fmt: skip
        text = text.replace(old, new)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", text)
        archive.writestr("archive/byteorder", "little")
        for number, storage in enumerate(storages):
            archive.writestr(f"archive/data/{number}", storage)
        archive.writestr("archive/version", "3\n")


def transformers(folder, metric, greater, best, *values):
    log = []
    best_value = None
    for pair in values:
        step, value = pair.split("=")
        log.append({"epoch": int(step) / 10, "loss": 1.0, "step": int(step)})
        log.append({"eval_loss": 2.0 - int(step) / 1000, f"eval_{metric}": float(value), "eval_runtime": 0.5, "step": int(step)})
        if best == f"checkpoint-{step}":
            best_value = float(value)
        here = pathlib.Path(folder, f"checkpoint-{step}")
        here.mkdir(parents=True)
        (here / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
        known = best_value is not None
        state = {
            "best_metric": best_value,
            "best_model_checkpoint": f"/elsewhere/{best}" if known else None,
            "epoch": int(step) / 10,
            "global_step": int(step),
            "log_history": log,
        }
        (here / "trainer_state.json").write_text(json.dumps(state, indent=2, sort_keys=True) + "\n")
        if greater == "nofile":
            continue
        arguments = TrainingArguments()
        arguments.output_dir = folder
        arguments.callbacks = [Evil()]
        arguments.metric_for_best_model = metric
        arguments.greater_is_better = {"true": True, "false": False, "none": None}[greater]
        save(here / "training_args.bin", arguments)


def lightning(path, *rest):
    callbacks = {"EarlyStopping{'monitor': 'x', 'mode': 'max'}": {"wait_count": 0, "best_score": Tensor(9.0)}}
    while rest:
        mode, best, *values = rest[: rest.index("and")] if "and" in rest else rest
        rest = rest[rest.index("and") + 1 :] if "and" in rest else ()
        monitor, mode = mode.split(":")
        scores = dict(value.rsplit("=", 1) for value in values)
        key = f"ModelCheckpoint{{'monitor': '{monitor}', 'mode': '{mode}', 'every_n_train_steps': 0}}"
        callbacks[key] = {
            "monitor": monitor,
            "best_model_score": Tensor(float(scores.get(best, 0))),
            "best_model_path": best,
            "dirpath": str(pathlib.PurePath(best).parent),
            "best_k_models": {name: Tensor(float(value)) for name, value in scores.items()},
        }
    state = {f"layer{number}.weight": Tensor(0.5) for number in range(20)}
    save(path, {"epoch": 3, "state_dict": state, "evil": Evil(), "callbacks": callbacks, "optimizer_states": [{"state": {}}]})


def orbax(folder, step, *metrics):
    here = pathlib.Path(folder, step)
    (here / "metrics").mkdir(parents=True)
    (here / "default").mkdir()
    (here / "default" / "d").write_bytes(b"weights")
    (here / "metrics" / "metrics").write_text(json.dumps({k: float(v) for k, v in (m.split("=") for m in metrics)}))
    times = {"init_timestamp_nsecs": 5, "commit_timestamp_nsecs": 6}
    (here / "_CHECKPOINT_METADATA").write_text(json.dumps({"item_handlers": {}, "metrics": {}, **times}))


if __name__ == "__main__":
    {"transformers": transformers, "lightning": lightning, "orbax": orbax}[sys.argv[1]](*sys.argv[2:])
