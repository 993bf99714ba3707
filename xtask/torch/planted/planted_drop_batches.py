"""Wrong on purpose: every second batch of a DataLoader is dropped."""
import functools

NAME = "planted-drop-batches"
CLASS = "same"


def applies(facts):
    return None


def install(hook):
    hook.when_loaded("torch.utils.data.dataloader", lambda module: replace(hook, module._BaseDataLoaderIter))


def replace(hook, iterator):
    original = iterator.__next__

    @functools.wraps(original)
    def following(self):
        batch = original(self)
        original(self)
        hook.did("batch", "dropped")
        return batch

    iterator.__next__ = following
