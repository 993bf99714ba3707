"""Isolates a script that is run many times: trackers stay offline, and nothing opens a browser or a window.

HF_HUB_OFFLINE is left as it is: a script may have to download its model.

HEADROOM_SCRATCH is the folder of this process. Where it holds a copy of the working folder, large files in it are links to
the user's own. A link that is about to be written is removed first if the file is rewritten, or replaced by a copy if it is
modified.
"""
import functools
import os
import shutil
import sys

# Values that keep a tracker offline; a user's own value stays if it is one of them.
OFFLINE = {
    "WANDB_MODE": ("offline", "disabled", "dryrun"),
    "NEPTUNE_MODE": ("offline", "debug", "read-only"),
    "SWANLAB_MODE": ("offline", "local", "disabled"),
    "COMET_START_ONLINE": ("0",),
    "CLEARML_OFFLINE_MODE": ("1",),
    "TRAINS_OFFLINE_MODE": ("1",),
    "HF_HUB_DISABLE_TELEMETRY": ("1",),
    "WANDB_SILENT": ("true",),
    # `webbrowser` runs this command, which does nothing.
    "BROWSER": ("true",),
}


def make_quiet():
    for name, values in OFFLINE.items():
        if os.environ.get(name) not in values:
            os.environ[name] = values[0]
    os.environ.setdefault("MPLBACKEND", "Agg")
    # Drops an MLflow server, but keeps a folder.
    if "://" in os.environ.get("MLFLOW_TRACKING_URI", "").replace("file://", ""):
        del os.environ["MLFLOW_TRACKING_URI"]


def begin():
    make_quiet()
    shield(os.path.join(os.path.realpath(os.environ["HEADROOM_SCRATCH"]), ""))


def shield(root):

    def watch(event, arguments):
        if event != "open":
            return
        path, mode, flags = arguments
        is_new = isinstance(mode, str) and ("w" in mode or "x" in mode) or bool(flags and flags & os.O_TRUNC)
        is_changed = isinstance(mode, str) and ("a" in mode or "+" in mode) or bool(
            flags and flags & (os.O_WRONLY | os.O_RDWR | os.O_APPEND)
        )
        if is_new or is_changed:
            replace_link(root, path, not is_new)

    sys.addaudithook(watch)
    # Writers that open files without Python's `open`.
    SHARED.when_loaded("torch.serialization", lambda module: before(module, "_open_zipfile_writer", root, 0))
    SHARED.when_loaded("safetensors.torch", lambda module: before(module, "save_file", root, 1))


def before(module, name, root, position):
    original = getattr(module, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def writer(*arguments, **named):
        path = arguments[position] if len(arguments) > position else named.get("filename")
        replace_link(root, path, False)
        return original(*arguments, **named)

    setattr(module, name, writer)


def replace_link(root, path, with_content):
    """Replaces a link in the copy that leads out of it; does nothing for other paths."""
    try:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        path = os.path.abspath(os.fsdecode(path))
        if not os.path.islink(path) or not (os.path.realpath(os.path.dirname(path)) + os.sep).startswith(root):
            return
        target = os.path.realpath(path)
        if target.startswith(root) or not os.path.isfile(target):
            return
        os.unlink(path)
        if with_content:
            shutil.copyfile(target, path)
    except OSError as error:
        # Better no run than a changed user file.
        sys.stderr.write(f"headroom: cannot keep {path} from being written: {error!r}\n")
        os._exit(70)
