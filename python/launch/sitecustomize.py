# sitecustomize.py: `neap run` puts this first on PYTHONPATH, so that an unchanged script is attached.
#
#   1. gives way to the sitecustomize that Python would have found without us (Debian's, the user's). Where that is another copy
#      of this file, the second one does nothing but give way
#   2. waits for torch to be imported
#        before   with NEAP_DEVICE=sim: loads neap's stand-ins for NVIDIA's libraries (neap/_simulator.py)
#        after    with NEAP_ATTACH=1: loads neap.hooks
#
# It costs a process that does not import torch nothing else. It must not break a script: failures here become notes that `neap run`
# finds (without `neap run`: lines on stderr), and are never raised. It runs in the script's own Python, so it uses only syntax that
# an old Python parses, too. Child processes inherit the environment, and with it all of this.
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_packages = os.path.dirname(_here)  # where our package lies: beside us, or (in a wheel) around us
if os.path.exists(os.path.join(_packages, "_abi.py")):
    _packages = os.path.dirname(_packages)


_attach = os.environ.get("NEAP_ATTACH") == "1"
# NEAP_SIM_RUNTIME: the folder of the stand-ins. `neap run` sets it if there are any, and so does the shell of `neap sim env`.
_simulate = os.environ.get("NEAP_DEVICE") == "sim" and (_attach or bool(os.environ.get("NEAP_SIM_RUNTIME")))


def _is_here(folder):
    try:
        return os.path.realpath(folder or os.getcwd()) == os.path.realpath(_here)
    except OSError:
        return False


def _note(text):
    """Leaves a line for `neap run`, which shows it."""
    folder = os.environ.get("NEAP_RUN_DIR")
    try:
        if not _attach:
            sys.stderr.write("neap: " + text + "\n")
        elif folder:
            with open(os.path.join(folder, "note.%d" % os.getpid()), "a") as file:
                file.write(text.replace("\n", " ")[:400] + "\n")
    except Exception:
        pass


def _is_installed():
    """Whether another copy of this file is installed: two would both count the same things."""
    return any(getattr(finder, "neap_launch", None) for finder in sys.meta_path)


def _install():
    import importlib.util
    from importlib.machinery import PathFinder

    class _Attach(object):
        """Finds torch in the ordinary way, and calls us before and after it is loaded. Also makes `import neap` work in a script
        without an installed neap, as if our folder were the last on the path."""

        neap_launch = _here

        def __init__(self):
            self.busy = False

        def find_spec(self, name, path=None, target=None):
            if _simulate and name in ("jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13"):
                _note("JAX finds no simulated GPU: it looks for /dev/nvidia0, and neap has no stand-in for its compiler's nvJitLink")
            if name not in ("torch", "neap") or self.busy:
                return None
            self.busy = True  # ask the finders after us, as if we were not there
            try:
                spec = importlib.util.find_spec(name)
            except Exception:
                return None
            finally:
                self.busy = False
            if name == "neap":  # a folder that only has the name is not a package
                return spec if spec is not None and spec.origin else PathFinder.find_spec(name, [_packages])
            if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
                spec.loader = _Loader(spec.loader)
            return spec

    class _Loader(object):
        """Torch's own loader, with our parts before and after it."""

        def __init__(self, real):
            self.real = real

        def __getattr__(self, name):
            return getattr(self.real, name)

        def create_module(self, spec):
            return self.real.create_module(spec)

        def exec_module(self, module):
            module.__spec__.loader = module.__loader__ = self.real
            missing, refusal = _load_stand_ins(module) if _simulate else ((), "")
            try:
                self.real.exec_module(module)  # an import error is torch's own
            except (ImportError, OSError, ValueError):  # OSError and ValueError: if torch opens its libraries itself
                if missing:
                    _note("PyTorch also needs %s, and neap has no stand-in for it" % ", ".join(missing))
                raise
            finally:
                if refusal:
                    _note_refusal(refusal)
            if missing:
                _note("PyTorch uses NVIDIA's own %s: neap has no stand-in for it" % ", ".join(missing))
            if _is_compile_worker():
                return
            if _simulate:
                _after_stand_ins(module)
            if _attach:
                _attach_to(module)

    sys.meta_path.insert(0, _Attach())


def _is_compile_worker():
    """Whether this is a compile worker of torch.compile, which only asks for the device's properties. It is no process of the
    program."""
    return (getattr(sys, "argv", None) or [""])[0].endswith("/torch/_inductor/compile_worker/__main__.py")


def _load_neap():
    """Loads the installed package if there is one, else ours; ours under another name if the script has another module named
    neap."""
    import importlib
    import importlib.util

    spec = importlib.util.find_spec("neap")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    if any(os.path.exists(os.path.join(folder, "_abi.py")) for folder in folders):
        importlib.import_module("neap.hooks")
        return sys.modules["neap"]
    folder = os.path.join(_packages, "neap")
    spec = importlib.util.spec_from_file_location(
        "_neap_attached", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules["_neap_attached"] = package
    spec.loader.exec_module(package)
    importlib.import_module("_neap_attached.hooks")
    return package


def _load_stand_ins(torch):
    """Called before torch is loaded, so that the dynamic loader takes neap's libraries for NVIDIA's. Returns the names of libraries
    that torch needs and neap lacks, and why none was loaded, or "". The file `simulated.PID` tells `neap run` that this process is
    simulated."""
    try:
        import importlib.util

        path = os.path.join(_packages, "neap", "_simulator.py")
        spec = importlib.util.spec_from_file_location("_neap_simulator", path)
        simulator = importlib.util.module_from_spec(spec)
        sys.modules["_neap_simulator"] = simulator
        spec.loader.exec_module(simulator)
        loaded = simulator.load(os.path.dirname(torch.__spec__.origin or ""))
        folder = os.environ.get("NEAP_RUN_DIR")
        if loaded.paths and folder:
            open(os.path.join(folder, "simulated.%d" % os.getpid()), "a").close()
        return loaded.missing, ""
    except Exception as error:
        return (), str(error)


def _note_refusal(why):
    """Reports why PyTorch is not simulated. LD_LIBRARY_PATH may have led the dynamic loader to stand-ins nevertheless: for example,
    `neap run` sets it for a shell."""
    folder = os.environ.get("NEAP_SIM_RUNTIME") or _here
    try:
        with open("/proc/self/maps") as maps:
            found = any(line.rstrip().startswith(folder, line.find("/")) for line in maps)
    except Exception:
        found = False
    _note("PyTorch is %ssimulated: %s" % ("only in part " if found else "not ", why))


def _after_stand_ins(torch):
    try:
        if sys.modules["_neap_simulator"].is_loaded():
            sys.modules["_neap_simulator"].torch_imported(torch)
    except Exception as error:
        _note("objects do not reach other ranks: %s: %s" % (type(error).__name__, error))
    try:
        if getattr(getattr(torch, "version", None), "cuda", None):
            import importlib

            said = importlib.import_module(_load_neap().__name__ + "._values").begin(torch)
            if said:
                _note(said)
    except Exception as error:
        _note("values are not computed: %s: %s" % (type(error).__name__, error))


def begin_late():
    """Starts late, in a Python that lost PYTHONPATH, once it uses the simulated driver. LD_LIBRARY_PATH has led PyTorch to the
    stand-ins, unless NVIDIA's own libraries lie beside it."""
    torch = sys.modules.get("torch")
    if sys.flags.isolated or sys.flags.ignore_environment or sys.flags.no_site:
        return
    os.environ["PYTHONPATH"] = os.pathsep.join([_here] + [part for part in [os.environ.get("PYTHONPATH")] if part])
    if torch is None or getattr(torch.__spec__, "_initializing", False):
        return
    if _simulate and not _simulate_late(torch):
        return
    if not _attach:
        return
    lock = getattr(torch.cuda, "_initialization_lock", None)
    if lock is not None and lock.locked():  # this thread may hold it: PyTorch is in _lazy_init, and our hooks would wait for it
        _wait_for(lock, lambda: _attach_to(torch))
    else:
        _attach_to(torch)


def _simulate_late(torch):
    """Simulates at once: values must be computed from the first operation on. False: PyTorch is not on the stand-ins."""
    if _load_stand_ins(torch)[1]:
        lost = "PYTHONPATH, which leads to neap's stand-ins, was replaced"
        _note_refusal(lost + ": where it is set, add what it was: PYTHONPATH=.:$PYTHONPATH")
        return False
    _after_stand_ins(torch)
    return True


def _wait_for(lock, function):
    """Calls the function in the main thread once the lock is free."""
    import ctypes
    import threading

    @ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    def call(_):
        try:
            function()
        except Exception as error:
            _note("PyTorch is not attached: %s: %s" % (type(error).__name__, error))
        return 0

    def wait():
        with lock:
            pass
        ctypes.pythonapi.Py_AddPendingCall(call, None)

    _wait_for.kept = call  # keeps the object: Python calls it later
    threading.Thread(target=wait, daemon=True).start()


def _attach_to(torch):
    try:
        _load_neap().hooks.torch_imported(torch)
    except Exception as error:
        _note("PyTorch is not attached: %s: %s" % (type(error).__name__, error))


def _too_old():
    """neap's package does not parse in this Python; the error is reported where the package would have been used."""
    import atexit

    def tell():
        if "torch" in sys.modules:
            what = " and not ".join(word for word in (_attach and "attached", _simulate and "simulated") if word)
            _note("PyTorch is not %s: it needs Python 3.9 or later, and this is %d.%d" % ((what,) + tuple(sys.version_info[:2])))

    atexit.register(tell)


def _chain():
    """Runs the sitecustomize that comes after us on the path, in our place, and lets its exceptions pass. Those before us have run
    already: another copy of this file may be among them."""
    if sys.version_info < (3,):
        import imp

        try:
            found = imp.find_module("sitecustomize", _after)
        except ImportError:
            return
        sys.modules.pop("sitecustomize", None)
        imp.load_module("sitecustomize", *found)
        return
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", _after)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_ours = [at for at, folder in enumerate(sys.path) if _is_here(folder)]
_after = [folder for at, folder in enumerate(sys.path) if at not in _ours and (not _ours or at > _ours[0])]
# Our folder stays on the path, once: PyTorch's compile workers, among others, pass sys.path to their children as PYTHONPATH.
sys.path[:] = [folder for at, folder in enumerate(sys.path) if at not in _ours[1:]]
try:
    if (_attach or _simulate) and not _is_installed():
        if sys.version_info >= (3, 9):
            _install()
        else:
            _too_old()
except Exception as _error:
    _note("Python is not attached: %s: %s" % (type(_error).__name__, _error))
if __name__ != "_neap_launch":  # the simulator's driver loads this file late: see python.c
    _chain()
